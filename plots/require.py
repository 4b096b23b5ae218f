"""Option types for a study's folder, which is checked before a command's slow imports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from bench.config import UsageError
from bench.options import Shown


def require_folder(folder: Path) -> Path:
    """Return `folder`. Raises UsageError if it is not a folder, such as a packed archive."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a study's folder, results/STUDY")
    return folder


ExistingFolder = Annotated[Path, AfterValidator(require_folder)]
StudyPath = Annotated[
    ExistingFolder,
    Shown("STUDY"),
    Field(description="a study's folder, results/STUDY, with runs/*.jsonl or logs.tar.gz in it"),
]
