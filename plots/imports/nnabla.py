"""NNabla's monitors: console lines, `*.series.txt` (index, value) and `*.timer.txt`.

`iter=24 {Training time}=0.294[sec/12iter] 1.165[sec]`; a timer file's line is index, seconds of the
lap, iterations in it, seconds in all.
"""

from __future__ import annotations

import re

import pandas as pd

from plots.imports.observation import NUMBER, Format, floats, long, together, wide

_LAPS = (
    rf"iter=(?P<step>\d+) \{{Training time\}}=(?P<lap>{NUMBER})\[sec/(?P<steps>\d+)iter\]",
    rf"^(?P<step>\d+) (?P<lap>{NUMBER}) (?P<steps>\d+) {NUMBER}[ \t]*$",
)
_VALUES = (
    rf"iter=(?P<step>\d+) \{{Training loss\}}=(?P<train_loss>{NUMBER})",
    rf"iter=(?P<step>\d+) \{{Training error\}}=(?P<train_error>{NUMBER})",
    rf"iter=(?P<step>\d+) \{{Test error\}}=(?P<test_error>{NUMBER})",
    rf"^(?P<step>\d+) (?P<series_value>{NUMBER})[ \t]*$",
)
_laps, _values = ([re.compile(p, re.MULTILINE) for p in group] for group in (_LAPS, _VALUES))


def _read(text: str) -> pd.DataFrame:
    parts = [long(wide(pattern, text)) for pattern in _values]
    for pattern in _laps:
        laps = wide(pattern, text)
        steps = floats(laps["steps"])
        mean = (floats(laps["lap"]) / steps)[steps > 0]
        step = pd.to_numeric(laps["step"])[steps > 0]
        parts.append(pd.DataFrame({"quantity": "step_seconds", "value": mean, "step": step}))
    return together(parts)


FORMAT = Format(
    read=_read,
    written_by="sony/nnabla-examples, distributed/cifar10-100",
    of_a_rank=True,
    notes=("a time is the mean of the iterations since the line before",),
)
