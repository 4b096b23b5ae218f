"""The source files of the user's own model, data set or backend, as this process loaded them."""

from __future__ import annotations

import hashlib
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath
from types import ModuleType

from bench.backends.catalogue import USERS
from bench.config import RunConfig, UsageError
from bench.record import USER_CODE

_PROJECT = Path(__file__).parents[2]
_OURS = (_PROJECT / "bench",)
_DIGITS = 12  # of a digest, in the name of a folder


def factories(config: RunConfig) -> tuple[str, ...]:
    """List the modules of the factories that `config` names."""
    names = (config.model, config.dataset)
    return tuple(name.partition(":")[0] for name in names if ":" in name)


def loaded(config: RunConfig) -> dict[str, bytes]:
    """Read the source of the factories' modules, of all modules that this process imported from
    outside the installed packages, and of the user's backends, by path ('package/module.py').

    Raises UsageError where a factory's file cannot be read. Other files that such code reads, such
    as weights, are not included.
    """
    files, modules = _of_backends(), factories(config)
    if not modules:
        return files
    installed = (*_installed(), *_OURS)
    for name, module in sorted(sys.modules.items()):
        file = None if name == "__main__" else _file(module)
        if file is not None and (name in modules or not _within(file, installed)):
            files[_place(name, file)] = file.read_bytes()
    for name in modules:
        if _file(sys.modules.get(name)) is None:
            rule = "has no file, so two runs of it could not be told apart"
            raise UsageError(f"module {name} {rule}; put it into one")
    return files


def _of_backends() -> dict[str, bytes]:
    """Read all files of the user's backends, used or not, so that all cells' runs have the same."""
    files = {}
    names = [name for name in sys.modules if name.startswith(USERS) and "." not in name]
    for module in (sys.modules[name] for name in names):
        if file := _file(module):
            package = file.stem == "__init__"
            for path in file.parent.rglob("*.py") if package else [file]:
                place = path.relative_to(file.parents[1] if package else file.parent)
                files[place.as_posix()] = path.read_bytes()
    return dict(sorted(files.items()))


def versions(config: RunConfig) -> dict[str, str]:
    """Look up the versions of the installed packages that hold a factory."""
    packages = {name.partition(".")[0] for name in factories(config)}
    if not packages:
        return {}
    holders = metadata.packages_distributions()
    return {name: metadata.version(holders[name][0]) for name in packages & holders.keys()}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of each file, by its path."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def folder_of(sha256: Mapping[str, str]) -> str:
    """Name the folder of files with these digests by path, relative to the logs' folder."""
    text = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sha256.items()))
    return f"{USER_CODE}/{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def keep(files: Mapping[str, bytes], log: Path | None) -> None:
    """Copy `files` to beside the log, laid out for PYTHONPATH. Raises UsageError if that fails."""
    if log is None or not files:
        return
    from bench.study.disk import write_whole  # few runs have files of their own

    place = log.parent / folder_of(digests(files))
    for name, content in files.items():
        if not (place / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(place / name, content)


def _installed() -> tuple[Path, ...]:
    """List the folders of Python's own modules and of installed packages."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(folder).resolve() for folder in folders)


def _file(module: ModuleType | None) -> Path | None:
    """Return the file a module was read from; None if it is built in or the file has vanished."""
    name = getattr(module, "__file__", None)
    with suppress(OSError):
        if isinstance(name, str) and (file := Path(name)).is_file():
            return file.resolve()
    return None


def _within(file: Path, places: Iterable[Path]) -> bool:
    return any(file.is_relative_to(place) for place in places)


def _place(name: str, file: Path) -> str:
    """Return 'package/module.py' for 'package.module', 'package/__init__.py' for a package."""
    parts = name.split(".")
    if file.stem == "__init__":
        return str(PurePosixPath(*parts, file.name))
    return str(PurePosixPath(*parts[:-1], parts[-1] + "".join(file.suffixes)))
