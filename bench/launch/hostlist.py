"""Slurm's hostlists as names, without `scontrol`, which containers often lack."""

from __future__ import annotations

import itertools
import math
import re

from bench.config import UsageError

_MAX_BRACKETS = 2
_MOST_DIGITS = 9
_MOST_HOSTS = 100_000  # ten times the largest machines
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")


def expand(text: str) -> list[str]:
    """Names in the order of `text`, widths kept: 'n[08-10],m1' -> n08 n09 n10 m1.

    Raises UsageError on anything else. Three or more brackets in a name are refused: Slurm's own
    order is then neither that of reading nor its reverse.
    """
    names: list[str] = []
    place = 0
    while True:
        match = _PART.match(text, place)
        if match is None:
            raise _invalid(text, f"nothing readable at {text[place : place + 10]!r}")
        names += _expand_part(match[0], text)
        place = match.end()
        if place == len(text):
            return names
        if text[place] != ",":
            raise _invalid(text, f"unpaired bracket at {text[place:]!r}")
        place += 1


def _expand_part(part: str, text: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)  # prefix, ranges, text between, ranges, what follows
    prefixes, ranges = pieces[0::2], pieces[1::2]
    if len(ranges) > _MAX_BRACKETS:
        raise _invalid(
            text, f"{part!r} has {len(ranges)} brackets, and the order is known for {_MAX_BRACKETS}"
        )
    if ranges and prefixes[-1]:
        raise _invalid(text, f"{prefixes[-1]!r} follows a bracket")
    numbers = [
        [number for item in inside.split(",") for number in _numbers(item, text)]
        for inside in ranges
    ]
    if math.prod(map(len, numbers)) > _MOST_HOSTS:
        raise _invalid(text, f"{part!r} counts more than {_MOST_HOSTS} hosts")
    ends = prefixes[:-1] if ranges else prefixes
    return [
        "".join(word for pair in itertools.zip_longest(ends, choice, fillvalue="") for word in pair)
        for choice in itertools.product(*numbers)
    ]


def _numbers(item: str, text: str) -> list[str]:
    """'08-10' -> 08 09 10; '7' -> 7."""
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", item)
    if match is None:
        raise _invalid(text, f"{item!r} is neither a number nor a range")
    first, last = match[1], match[2] or match[1]
    if len(last) > _MOST_DIGITS or int(last) - int(first) >= _MOST_HOSTS:
        raise _invalid(text, f"{item!r} counts more than {_MOST_HOSTS} hosts")
    if int(last) < int(first) or (len(first) != len(last) and last.startswith("0")):
        raise _invalid(text, f"{item!r} is not a rising range of one width")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _invalid(text: str, reason: str) -> UsageError:
    return UsageError(f"hostlist {text!r}: {reason}; Slurm writes n[001-003,7],m1")
