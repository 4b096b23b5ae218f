"""Where the files of a user's own model and data set lie: beside the logs, by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

FOLDER = "user_code"  # beside the logs
DIGITS = 12  # of a digest, in the name of a folder


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of each file, by its path."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def folder_of(sha256: Mapping[str, str]) -> str:
    """Name the folder of files with these digests by path, relative to the logs' folder."""
    text = "".join(f"{name}\0{digest}\n" for name, digest in sorted(sha256.items()))
    return f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
