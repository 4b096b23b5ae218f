"""Read a pickle of numbers, as the CIFAR files are, without calling anything that the file names.

A pickle is a program: `pickle.load` runs whatever it asks for. Here the few names that an array
needs mean the classes below, and any other name is refused. numpy's own are not used either: a
made-up state of its dtype can pass bytes off as objects.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np


class _Type:
    """numpy.dtype in a pickle: its code, then a state whose second entry is the byte order."""

    def __init__(self, code: str, *_: object) -> None:
        self._code = code
        self._order: Any = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = state[1]

    def numbers(self) -> np.dtype[Any]:
        """Read the type that is meant. Raises UnpicklingError where it is not of plain numbers."""
        kind = np.dtype(self._code).newbyteorder(self._order)
        if kind.kind not in "biuf":
            raise pickle.UnpicklingError(f"it holds an array of {kind}")
        return kind


class _Array:
    """numpy.ndarray in a pickle: made empty, then told its state."""

    values: np.ndarray[Any, Any] | None = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_column, raw = state
        self.values = _array(raw, kind, shape, "F" if by_column else "C")


class _Buffer(_Array):
    """numpy.ndarray in pickles of protocol 5: made with its state."""

    def __init__(self, raw: bytes, kind: _Type, shape: tuple[int, ...], order: str = "C") -> None:
        self.values = _array(raw, kind, shape, order)


class _Bytes(bytes):
    """Bytes in Python 3's pickles of the old protocols: `_codecs.encode` of a text."""

    def __new__(cls, text: str, _encoding: str) -> _Bytes:
        return super().__new__(cls, text.encode("latin1"))


def _array(raw: bytes | str, kind: _Type, shape: tuple[int, ...], order: Any) -> Any:
    plain = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 had one type for both
    return np.frombuffer(plain, kind.numbers()).reshape(shape, order=order)


_KNOWN = {("numpy", "dtype"): _Type, ("numpy", "ndarray"): _Array, ("_codecs", "encode"): _Bytes}
for _core in ("numpy.core", "numpy._core"):  # numpy 1 and 2
    _KNOWN[f"{_core}.multiarray", "_reconstruct"] = _Array
    _KNOWN[f"{_core}.numeric", "_frombuffer"] = _Buffer


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            rule = "only numbers, texts, lists, tables and arrays are read"
            raise pickle.UnpicklingError(f"it names {module}.{name}, and {rule}")
        return _KNOWN[module, name]


def read(path: Path) -> dict[str, Any]:
    """Read a file's table with numpy arrays. A broken one may raise anything; none of it is run."""
    with path.open("rb") as file:
        table = _Reader(file, encoding="latin1").load()
    if not isinstance(table, dict):
        raise pickle.UnpicklingError(f"it holds a {type(table).__name__}, not a table")
    return {k: v.values if isinstance(v, _Array) else v for k, v in table.items()}
