"""The rooms and who may import whom, read from the syntax tree: this test is the diagram."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
GROUND = {
    "bench.version",
    "bench.factory",
    "bench.give_up",
    "bench.options",
    "bench.shell",
    "bench.config",
    "bench.record",
    "bench.study",
}
GROUND |= {"bench.backends.catalogue", "bench.backends.facts"}
STARTS_RANKS = {
    "bench.launch.gpu",
    "bench.launch.launcher",
    "bench.launch.machine",
    "bench.lifecycle.turn_table",
}
ALLOWED = {
    "bench": {"bench"},
    "slurm": {"slurm"} | GROUND | STARTS_RANKS,
    "plots": {"plots"} | GROUND,
}
FIGURES = (ROOT / "plots" / "report" / "figures").glob("*.py")
# third-party modules that only the named files may import
ONLY_IN = {
    "horovod": {
        "bench/backends/hvd.py",
        "bench/backends/hvd_start.py",
        "bench/tools/setup/verify.py",
        "bench/tools/doctor/probe.py",
    },
    "mpi4py": {
        "bench/backends/collectives.py",
        "bench/backends/mpi_group.py",
        "bench/tools/setup/verify.py",
        "bench/tools/doctor/probe.py",
    },
    "matplotlib": {p.relative_to(ROOT).as_posix() for p in FIGURES},
}
HEAVY = {"torch", "torchvision", "horovod", "mpi4py", "sklearn"}
# what a login node or a laptop reads, and how a run begins, speaks and ends before torch is there
TORCH_FREE = {"slurm", "plots", "bench/config", "bench/record", "bench/lifecycle", "bench/study"}
TORCH_FREE |= {f"bench/backends/{name}.py" for name in ("__init__", "buckets", "catalogue")}
TORCH_FREE |= {"bench/backends/facts.py"}
TORCH_FREE |= {"bench/launch", "bench/tools/doctor", "bench/__init__.py", "bench/__main__.py"}
OF_TOP = ("command", "factory", "progress", "streams")
TORCH_FREE |= {f"bench/{name}.py" for name in OF_TOP}
TORCH_FREE |= {"bench/instrument/timeline.py"}
# the ranks' meeting, and what the doctor starts in a process of its own
NEED_TORCH = {
    "bench/launch/rendezvous.py",
    "bench/tools/doctor/trial.py",
    "bench/tools/doctor/probe.py",
}
# set-up and doctor are built on the rest of bench, which knows of them only as a command
KNOWS_THE_TOOLS = {"bench/command.py"}

# May name a framework: what starts it, what installs it and what looks at its build.
NAMES_FRAMEWORKS: tuple[str, ...] = (
    "bench/backends/",
    "bench/tools/setup/",
    "plots/imports/",  # other tools by their names
)
NAMES_FRAMEWORKS += tuple(f"bench/tools/doctor/{f}.py" for f in ("checks", "probe"))
NAMES_FRAMEWORKS += ("bench/launch/world.py",)  # launchers' variables
# run by other programs in Pythons of their own, from which the catalogue is out of reach
NAMES_FRAMEWORKS += ("slurm/centre/",)


@cache
def sources() -> dict[str, ast.Module]:
    """Parse every file of the rooms, by its path below the root."""
    paths = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    return {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text()) for p in paths}


@cache
def imports(path: str) -> frozenset[str]:
    """Name every module a file imports, at any depth of the file; `from a import b` is a.b."""
    modules: set[str] = set()
    for node in ast.walk(sources()[path]):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(modules)


def below(module: str, parents: set[str]) -> bool:
    return any(module == parent or module.startswith(parent + ".") for parent in parents)


def offences(path: str, forbidden: set[str]) -> list[str]:
    """Word each import of a file that lies below a forbidden module."""
    return [f"{path}: {module}" for module in imports(path) if below(module, forbidden)]


def test_rooms_meet_only_where_they_may() -> None:
    assert len(sources()) > 20
    assert below("torch.distributed", {"torch"})
    assert not below("torchvision", {"torch"})
    wrong = []
    for path in sources():
        # `from bench import x` names a module x of the room, or the room itself
        ours = {module for module in imports(path) if below(module, {*ROOMS, "tests"})}
        allowed = ALLOWED[path.partition("/")[0]]
        wrong += [f"{path}: {module}" for module in ours if not below(module, allowed)]
    assert wrong == []


def test_heavy_libraries_stay_in_their_files() -> None:
    wrong = []
    for path in sources():
        for library, files in ONLY_IN.items():
            wrong += [] if path in files else offences(path, {library})
        if path not in NEED_TORCH and f"{path}/".startswith(tuple(f"{x}/" for x in TORCH_FREE)):
            wrong += offences(path, HEAVY)
    assert wrong == []


# a reader knows no analysis, an analysis no report: readers of other tools' logs can share both
KNOWS_NOT = {
    "plots/read/": {"plots.analyse", "plots.report", "plots.bundle"},
    "plots/analyse/": {"plots.report", "plots.bundle"},
    "plots/report/": {"plots.bundle"},
}


def test_what_stands_below_knows_nothing_above() -> None:
    wrong = []
    for path in sources():
        for room, above in KNOWS_NOT.items():
            wrong += offences(path, above) if path.startswith(room) else []
        if not path.startswith("bench/tools/") and path not in KNOWS_THE_TOOLS:
            wrong += offences(path, {"bench.tools"})
    assert wrong == []


def words(tree: ast.Module) -> set[str]:
    """Collect names and texts of a module, without comments and docstrings."""
    texts = {node for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    texts -= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {str(text.value) for text in texts} | names


NAMED = re.compile(r"(?i)horovod(?!run|-vs-)|\bhvd\b(?!-ddp)|(?<!-vs-)(?<!hvd-)\bddp\b")


def test_frameworks_are_named_by_their_backends_alone() -> None:
    """Whatever else speaks of them asks the catalogue; `horovodrun` is a launcher."""
    templates = {str(path): {path.read_text()} for path in (ROOT / "plots").rglob("*.j2")}
    sayings = {p: words(t) for p, t in sources().items() if not p.startswith(NAMES_FRAMEWORKS)}
    files = (sayings | templates).items()
    assert [path for path, texts in files if any(map(NAMED.search, texts))] == []


def test_a_module_opens_with_a_sentence_on_its_job() -> None:
    first = {p: (ast.get_docstring(t) or "").split("\n\n")[0] for p, t in sources().items()}
    assert [p for p, text in first.items() if not text.rstrip().endswith((".", ":", ";"))] == []


NO_NAMES = {"found", "told", "said", "own", "there", "here", "ours", "theirs", "mine", "whose"}
NO_NAMES |= {"what", "asked", "given"}
KEYS_OF_THE_LOG = {"bench/record/events.py": {"said"}}


def bindings(tree: ast.AST) -> set[str]:
    """Collect whatever a file gives a name: variables, parameters, functions, classes."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=bare, ctx=ast.Store()) | ast.arg(arg=bare):
                bound.add(bare)
            case ast.FunctionDef(name=bare) | ast.ClassDef(name=bare):
                bound.add(bare)
            case ast.MatchAs(name=str(bare)) | ast.ExceptHandler(name=str(bare)):
                bound.add(bare)
    return bound


def test_names_are_nouns_of_the_field() -> None:
    bound = {path: bindings(tree) for path, tree in sources().items()}
    wrong = {p: names & NO_NAMES - KEYS_OF_THE_LOG.get(p, set()) for p, names in bound.items()}
    assert {path: names for path, names in wrong.items() if names} == {}


def types(tree: ast.Module) -> set[str]:
    """Collect classes of a file, and its top-level aliases of types: `Count = Annotated[...]`."""
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    aliases = {target.id for target in targets if isinstance(target, ast.Name)}
    return classes | {alias for alias in aliases if re.match("_?[A-Z][a-z]", alias)}


def test_a_type_name_has_one_meaning() -> None:
    files = Counter(chain.from_iterable(map(types, sources().values())))
    assert [name for name, count in files.items() if count > 1] == []


def test_a_module_is_read_in_one_sitting_and_a_function_is_seen_at_once() -> None:
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > 500} == {}
    functions = [
        (f"{path} {node.name}", (node.end_lineno or 0) - node.lineno)
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    assert [name for name, lines in functions if lines >= 60] == []


NO_BEGINNINGS = {"A", "All", "An", "As", "At", "By", "Each", "Every", "For", "From", "How", "If"}
NO_BEGINNINGS |= {"In", "Is", "No", "Of", "On", "One", "That", "The", "This", "Those", "To", "What"}
NO_BEGINNINGS |= {"When", "Where", "Whether", "Which", "Whose", "Why", "With", "Without"}


def test_a_docstring_of_a_function_begins_with_a_verb() -> None:
    """None begins with an article, a preposition or a pronoun; a property is named by a noun."""
    functions = [
        (f"{path} {node.name}", (ast.get_docstring(node) or "x").split()[0])
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("property" in ast.unparse(way) for way in node.decorator_list)
    ]
    assert [name for name, word in functions if word.rstrip(",:") in NO_BEGINNINGS] == []
