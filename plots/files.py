"""Write a file whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, data: bytes | str) -> Path:
    """Put `data` under another name beside `path`, then rename; what a full disk leaves of it is
    removed.

    Raises OSError.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(data.encode(errors="replace") if isinstance(data, str) else data)
        return temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
