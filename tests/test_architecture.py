"""The rooms and who may import whom, read from the syntax tree: this test is the diagram."""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
GROUND = {
    "bench.version",
    "bench.called",
    "bench.extras",
    "bench.factory",
    "bench.missing",
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
TORCH_FREE |= {"bench/backends/facts.py", "bench/backends/ps/__init__.py"}
TORCH_FREE |= {"bench/launch", "bench/tools/doctor", "bench/__init__.py", "bench/__main__.py"}
OF_TOP = ("command", "extras", "factory", "missing", "progress", "streams")
TORCH_FREE |= {f"bench/{name}.py" for name in OF_TOP}
TORCH_FREE |= {"bench/instrument/timeline.py", "bench/tools/timeline.py"}
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


def sources() -> list[Path]:
    return [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """Every module a file imports, at any depth of the file, as dotted names; `from a import b`
    counts as a.b and a.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def below(module: str, parents: set[str]) -> bool:
    return any(module == parent or module.startswith(parent + ".") for parent in parents)


def test_there_is_something_to_check() -> None:
    assert len(sources()) > 20
    assert below("torch.distributed", {"torch"})
    assert not below("torchvision", {"torch"})


@pytest.mark.parametrize("path", sources(), ids=name)
def test_rooms_meet_only_where_they_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    ours = {module for module in imports(path) if below(module, {*ROOMS, "tests"})}
    # `from bench import x` names a module x of the room, or the room itself
    forbidden = {module for module in ours if not below(module, ALLOWED[room])}
    assert not forbidden, f"{name(path)} may import only {sorted(ALLOWED[room])}"


@pytest.mark.parametrize("path", sources(), ids=name)
def test_heavy_libraries_stay_in_their_files(path: Path) -> None:
    modules = imports(path)
    for library, files in ONLY_IN.items():
        if name(path) not in files:
            assert not any(below(m, {library}) for m in modules), (
                f"{library} belongs in {sorted(files)}"
            )
    if (
        any(f"{name(path)}/".startswith(f"{room}/") for room in TORCH_FREE)
        and name(path) not in NEED_TORCH
    ):
        assert not any(below(m, HEAVY) for m in modules)


@pytest.mark.parametrize("path", sources(), ids=name)
def test_what_is_measured_knows_no_tool(path: Path) -> None:
    if not name(path).startswith("bench/tools/") and name(path) not in KNOWS_THE_TOOLS:
        assert not any(below(module, {"bench.tools"}) for module in imports(path))


# a reader knows no analysis, an analysis no report: readers of other tools' logs can share both
KNOWS_NOT = {
    "plots/read/": {"plots.analyse", "plots.report", "plots.bundle"},
    "plots/analyse/": {"plots.report", "plots.bundle"},
    "plots/report/": {"plots.bundle"},
}


@pytest.mark.parametrize("path", sources(), ids=name)
def test_reading_stands_below_analysis_and_analysis_below_reports(path: Path) -> None:
    for room, above in KNOWS_NOT.items():
        if name(path).startswith(room):
            assert not any(below(module, above) for module in imports(path))


def words(tree: ast.Module) -> set[str]:
    """Names and texts of a module, without comments and docstrings."""
    texts = {node for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    texts -= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {str(text.value) for text in texts} | names


NAMED = re.compile(r"(?i)horovod(?!run|-vs-)|\bhvd\b(?!-ddp)|(?<!-vs-)(?<!hvd-)\bddp\b")


def test_a_report_takes_its_labels_from_the_catalogue() -> None:
    for path in (ROOT / "plots").rglob("*.j2"):
        assert not NAMED.search(path.read_text()), name(path)


@pytest.mark.parametrize("path", sources(), ids=name)
def test_frameworks_are_named_by_their_backends_alone(path: Path) -> None:
    """Whatever else speaks of them asks the catalogue; `horovodrun` is a launcher."""
    if not name(path).startswith(NAMES_FRAMEWORKS):
        assert not [word for word in words(ast.parse(path.read_text())) if NAMED.search(word)]


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_module_opens_with_a_sentence_on_its_job(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.split("\n\n")[0].rstrip().endswith((".", ":", ";")), docstring


# names that hold a reader up: a noun of the field says what is in them
NO_NAMES = {"found", "told", "said", "own", "there", "here", "ours", "theirs", "mine", "whose"}
NO_NAMES |= {"what", "asked", "given"}
KEYS_OF_THE_LOG = {"bench/record/events.py": {"said"}}


def bindings(tree: ast.AST) -> set[str]:
    """Whatever a file gives a name: variables, parameters, functions, classes."""
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


@pytest.mark.parametrize("path", sources(), ids=name)
def test_names_are_nouns_of_the_field(path: Path) -> None:
    no_names = NO_NAMES - KEYS_OF_THE_LOG.get(name(path), set())
    assert not bindings(ast.parse(path.read_text())) & no_names


def types(tree: ast.Module) -> set[str]:
    """Classes of a file, and the aliases of types at its top level: `Count = Annotated[...]`."""
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    aliases = {target.id for target in targets if isinstance(target, ast.Name)}
    return classes | {alias for alias in aliases if re.match("_?[A-Z][a-z]", alias)}


def test_a_type_name_has_one_meaning() -> None:
    files = Counter(chain.from_iterable(types(ast.parse(p.read_text())) for p in sources()))
    assert not [name for name, count in files.items() if count > 1]


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", sources(), ids=name)
def test_a_function_is_seen_at_once(path: Path) -> None:
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)]
    assert not [n.name for n in functions if (n.end_lineno or 0) - n.lineno >= 60]
