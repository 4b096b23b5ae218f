"""What a forward pass may change besides gradients, saved and restored."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.train.numbers import RandomState

_ABSENT = object()


class PassState:
    """State of a network's modules, and of all random numbers, when it was made.

    Restored are buffers and every other attribute of a module: what a pass wrote in place, gave
    another value, or added, down to lists, dictionaries, arrays and generators that it holds.
    Parameters are left out: `written` names those that a pass wrote in place.
    """

    def __init__(self, network: nn.Module) -> None:
        self._random = RandomState()
        self._parameters = [
            (name, p, p._version, p.requires_grad) for name, p in network.named_parameters()
        ]
        seen = {id(p) for _, p, _, _ in self._parameters}
        self._restores = [r for module in network.modules() for r in _ways_back(vars(module), seen)]

    def restore(self) -> None:
        """Set everything back to this state."""
        with torch.no_grad():
            for restore in self._restores:
                restore()
        for _, parameter, _, trained in self._parameters:
            parameter.requires_grad_(trained)
        self._random.restore()

    def written(self) -> list[str]:
        """Name the parameters that were written in place since."""
        return [name for name, p, version, _ in self._parameters if p._version != version]


def _ways_back(value: Any, seen: set[int]) -> Iterator[Callable[[], object]]:
    """Yield ways back to what `value` holds now, for kinds of value that a pass can write into."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inside: Iterable[Any] = ()
    match value:
        case torch.Tensor() if value.layout == torch.strided:
            tensor = value.detach().clone()
            # an expanded tensor, which no pass can write, cannot be written
            yield lambda: None if torch.equal(value, tensor) else value.data.copy_(tensor)
        case np.ndarray():
            array = value.copy()
            yield lambda: np.copyto(value, array)
        case torch.Generator() | np.random.RandomState():
            state: Any = value.get_state()
            yield lambda: value.set_state(state)
        case random.Random():
            drawn = value.getstate()
            yield lambda: value.setstate(drawn)
        case np.random.Generator():
            bits, counted = value.bit_generator, value.bit_generator.state
            yield lambda: setattr(bits, "state", counted)
        case dict():
            saved = dict(value)
            yield lambda: _restore_items(value, saved)
            inside = saved.values()
        case list() | deque() | set():
            members: Any = value.copy()
            yield lambda: _refill(value, members)
            inside = members if isinstance(value, list) else ()
        case tuple():
            inside = value
    for item in inside:
        yield from _ways_back(item, seen)


def _refill(container: Any, members: Any) -> None:
    container.clear()
    container.update(members) if isinstance(container, set) else container.extend(members)


def _restore_items(table: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Write only what differs: compiled code watches these tables."""
    for name in [name for name in table if name not in saved]:
        del table[name]
    for name, value in saved.items():
        if table.get(name, _ABSENT) is not value:
            table[name] = value
