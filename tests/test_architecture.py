"""The rooms and who may import whom, read from the syntax tree: this test is the diagram."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Set
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ROOMS = ("bench", "slurm", "plots")
GROUND = {f"bench.{name}" for name in ("version", "give_up", "options", "shell")}
GROUND |= {"bench.config", "bench.record", "bench.study"}
GROUND |= {"bench.backends.catalogue", "bench.backends.facts"}
STARTS_RANKS = {"bench.launch.launcher", "bench.launch.machine", "bench.lifecycle.turns"}
PROBE = "bench/tools/doctor/probe.py"  # looks at builds
# what a login node or a laptop reads, and how a run begins, speaks and ends before torch is there
TORCH_FREE = (
    *("slurm/", "plots/", "bench/config/", "bench/record/", "bench/lifecycle/", "bench/study/"),
    *("bench/launch/", "bench/tools/doctor/", "bench/instrument/timeline.py"),
    *(f"bench/backends/{name}.py" for name in ("__init__", "catalogue", "facts")),
    *(f"bench/{name}.py" for name in ("__init__", "__main__", "command", "factory", "progress")),
)
# the ranks' meeting, and what the doctor starts in a process of its own
NEED_TORCH = ("bench/launch/rendezvous.py", PROBE)


class Rule(NamedTuple):
    """Files below `where` import nothing below `never`; two exceptions."""

    where: tuple[str, ...]
    never: Set[str]
    allowed: Set[str] = frozenset()  # modules
    but: tuple[str, ...] = ()  # files


RULES = (
    Rule(("bench/",), {"slurm", "plots", "tests"}),
    Rule(("slurm/",), {"bench", "plots", "tests"}, allowed=GROUND | STARTS_RANKS),
    Rule(("plots/",), {"bench", "slurm", "tests"}, allowed=GROUND),
    # set-up and doctor are built on the rest of bench, which knows of them only as a command
    Rule(("bench/",), {"bench.tools"}, but=("bench/tools/",)),
    Rule(("plots/analyse/",), {"plots.report", "plots.bundle"}),
    Rule(("plots/report/",), {"plots.bundle"}),
    Rule(("",), {"horovod"}, but=("bench/backends/hvd", PROBE)),
    Rule(("",), {"mpi4py"}, but=("bench/backends/mpi_group.py", PROBE)),
    Rule(("",), {"matplotlib"}, but=("plots/report/figures/",)),
    Rule(TORCH_FREE, {"torch", "torchvision", "horovod", "mpi4py", "sklearn"}, but=NEED_TORCH),
)

# May name a framework: what starts it, what installs it and what looks at its build.
NAMES_FRAMEWORKS = (
    *("bench/backends/", "bench/tools/setup/", "bench/launch/world.py"),
    *(f"bench/tools/doctor/{name}.py" for name in ("checks", "probe")),
    "slurm/centre/",  # run by other programs in Pythons without the catalogue
)
FRAMEWORK = re.compile(r"(?i)horovod(?!run|-vs-)|\bhvd\b(?!-ddp)|(?<!-vs-)(?<!hvd-)\bddp\b")

NO_NAMES = {"found", "told", "said", "own", "there", "here", "ours", "theirs", "mine", "whose"}
NO_NAMES |= {"what", "asked", "given"}
KEYS_OF_THE_LOG = {"bench/record/events.py": {"said"}}
NO_BEGINNINGS = "A All An As At By Each Every For From How If In Is No Of On One That The This"
NO_BEGINNINGS += " Those To What When Where Whether Which Whose Why With Without"


@cache
def sources() -> dict[str, ast.Module]:
    """Parse every file of the rooms, by its path below the root."""
    paths = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    return {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text()) for p in paths}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in sources().items():
        found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        yield from ((f"{path} {node.name}", node) for node in found)


def imports(tree: ast.Module) -> Iterator[str]:
    """Name every module a file imports, at any depth of the file; `from a import b` is a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from (f"{parent}{alias.name}" for alias in node.names)


def below(module: str, parents: Set[str]) -> bool:
    return any(f"{module}.".startswith(f"{parent}.") for parent in parents)


def test_a_file_imports_only_what_it_may() -> None:
    assert len(sources()) > 20
    assert (below("torch.nn", {"torch"}), below("torchvision", {"torch"})) == (True, False)
    wrong = [
        f"{path}: {module}"
        for path, tree in sources().items()
        for rule in RULES
        if path.startswith(rule.where) and not path.startswith(rule.but)
        for module in imports(tree)
        if below(module, rule.never) and not below(module, rule.allowed)
    ]
    assert wrong == []


def texts(tree: ast.Module) -> Iterator[str]:
    """Collect names and texts of a module, without comments and docstrings."""
    nodes = [*ast.walk(tree)]
    docs = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and node not in docs:
            yield str(node.value)
        elif isinstance(node, ast.Name):
            yield node.id


def test_frameworks_are_named_by_their_backends_alone() -> None:
    """Whatever else speaks of them asks the catalogue; `horovodrun` is a launcher."""
    names = {p: texts(t) for p, t in sources().items() if not p.startswith(NAMES_FRAMEWORKS)}
    names |= {str(path): iter([path.read_text()]) for path in (ROOT / "plots").rglob("*.j2")}
    assert [path for path, words in names.items() if any(map(FRAMEWORK.search, words))] == []


def bindings(tree: ast.AST) -> Iterator[str]:
    """Collect whatever a file gives a name: variables, parameters, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=bare, ctx=ast.Store()) | ast.arg(arg=bare):
                yield bare
            case ast.FunctionDef(name=bare) | ast.ClassDef(name=bare):
                yield bare
            case ast.MatchAs(name=str(bare)) | ast.ExceptHandler(name=str(bare)):
                yield bare


def test_names_are_nouns_of_the_field() -> None:
    wrong = {
        path: {*bindings(tree)} & NO_NAMES - KEYS_OF_THE_LOG.get(path, set())
        for path, tree in sources().items()
    }
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
    assert [p for p in sources() if len((ROOT / p).read_text().splitlines()) > 500] == []
    long = [name for name, node in functions() if (node.end_lineno or 0) - node.lineno >= 60]
    assert long == []


def test_a_docstring_of_a_function_begins_with_a_verb() -> None:
    """None begins with an article, a preposition or a pronoun; a property is named by a noun."""
    first = [
        (name, (ast.get_docstring(node) or "x").split()[0].rstrip(",:"))
        for name, node in functions()
        if not any("property" in ast.unparse(way) for way in node.decorator_list)
    ]
    assert [name for name, word in first if word in NO_BEGINNINGS.split()] == []
