"""Find study and site files by name: the shipped ones, or the user's own by their path."""

from __future__ import annotations

from pathlib import Path

from bench.config import UsageError, near
from bench.study.files import read
from slurm.site import Site

_HERE = Path(__file__).parent


def find_study(text: str) -> Path:
    """Find the study file that a path or the name of a shipped study stands for."""
    path = Path(text)
    if path.suffix == ".toml" or path.is_file():
        return path
    names = _names("studies")
    if text not in names and (path / "study.toml").is_file():
        return path / "study.toml"  # of a study's folder
    if text not in names:
        rule = f"neither a shipped study ({', '.join(names)}), nor the path of a .toml file"
        rule += " or of a study's folder"
        raise UsageError(f"{text!r} is {rule}{near(text, names)}")
    return _HERE / "studies" / f"{text}.toml"


def read_site(name: str) -> Site:
    """Read a shipped site by its name, or the user's own by the path of its .toml file."""
    names = _names("sites")
    if name in names:
        return read(_HERE / "sites" / f"{name}.toml", Site)
    path = Path(name)
    if path.suffix != ".toml":
        raise UsageError(f"{name!r} is not a known site ({', '.join(names)}){near(name, names)}")
    site = read(path, Site)
    if site.name != path.stem:
        rule = f"name={site.name!r} must be the file's: {path.stem!r}"
        raise UsageError(f"{path}: {rule}")
    return site


def _names(folder: str) -> list[str]:
    return sorted(p.stem for p in (_HERE / folder).glob("*.toml"))
