"""What a forward pass may change besides gradients, saved and restored."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.randomness import RandomState

Restore = Callable[[], object]
_ABSENT = object()


class PassState:
    """State of a network's modules, and of all random numbers, when it was made.

    Restored are buffers and every other attribute of a module: what a pass wrote in place, gave
    another value, or added, down to lists, dictionaries, arrays and generators that it holds.
    Parameters are left out: `written` names those that a pass wrote in place.
    """

    def __init__(self, network: nn.Module) -> None:
        self._random = RandomState()
        self._parameters = [(name, p, p._version) for name, p in network.named_parameters()]
        self._trained = [(p, p.requires_grad) for _, p, _ in self._parameters]
        seen = {id(p) for _, p, _ in self._parameters}
        self._restores = [r for module in network.modules() for r in _of_module(module, seen)]

    def restore(self) -> None:
        """Set everything back to this state."""
        with torch.no_grad():
            for restore in self._restores:
                restore()
        for parameter, trained in self._trained:
            parameter.requires_grad_(trained)
        self._random.restore()

    def written(self) -> list[str]:
        """Name the parameters that were written in place since."""
        return [name for name, p, version in self._parameters if p._version != version]


def _of_module(module: nn.Module, seen: set[int]) -> Iterator[Restore]:
    attributes = vars(module)
    saved = dict(attributes)
    yield lambda: _restore_items(attributes, saved)
    for name, value in saved.items():
        if name in ("_parameters", "_modules") and isinstance(value, dict):
            yield from _of_items(value, seen, deep=False)
        else:
            yield from _of_value(value, seen)


def _of_value(value: Any, seen: set[int]) -> Iterator[Restore]:
    """Yield ways back to what `value` holds now, for kinds of value that a pass can write into."""
    if id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case torch.Tensor() if value.layout == torch.strided:
            copy = value.detach().clone()
            yield lambda: _put_back(value, copy)
        case np.ndarray():
            array = value.copy()
            yield lambda: np.copyto(value, array)
        case torch.Generator():
            state = value.get_state()
            yield lambda: value.set_state(state)
        case random.Random():
            drawn = value.getstate()
            yield lambda: value.setstate(drawn)
        case np.random.Generator():
            bits = value.bit_generator
            counted = bits.state
            yield lambda: setattr(bits, "state", counted)
        case np.random.RandomState():
            legacy = value.get_state()
            yield lambda: value.set_state(legacy)
        case dict():
            yield from _of_items(value, seen, deep=True)
        case list():
            items = list(value)
            yield lambda: value.__setitem__(slice(None), items)
            for item in items:
                yield from _of_value(item, seen)
        case deque() | set():
            members = value.copy()
            yield lambda: _refill(value, members)
        case tuple():
            for item in value:
                yield from _of_value(item, seen)


def _of_items(table: dict[Any, Any], seen: set[int], deep: bool) -> Iterator[Restore]:
    saved = dict(table)
    yield lambda: _restore_items(table, saved)
    for value in saved.values() if deep else ():
        yield from _of_value(value, seen)


def _put_back(tensor: torch.Tensor, copy: torch.Tensor) -> None:
    """Write only what differs: an expanded tensor, which no pass can write, cannot be written."""
    if not torch.equal(tensor, copy):
        tensor.data.copy_(copy)


def _refill(container: Any, members: Any) -> None:
    container.clear()
    container.extend(members) if isinstance(container, deque) else container.update(members)


def _restore_items(table: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Write only what differs: compiled code watches these tables."""
    for name in [name for name in table if name not in saved]:
        del table[name]
    for name, value in saved.items():
        if table.get(name, _ABSENT) is not value:
            table[name] = value
