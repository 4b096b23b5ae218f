"""What job scripts and study.toml promised of every run, and where a log says otherwise: pure functions of their texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from bench.config import RunConfig
from plots.equal import EXCHANGE

Words = list[str]
_HERE_DOCUMENT = re.compile(r"<<'(END_OF_STUDY_*)'\n.*?\n\1\n", re.DOTALL)
_COMMON = re.compile(r"^COMMON=\(\n(.*?)^\)", re.DOTALL | re.MULTILINE)
_RUN = re.compile(r"^run ([^(\s].*)$", re.MULTILINE)


def promised(script: str) -> dict[str, Words]:
    """Options of `python -m bench` for each run id of a job script, as its lines `run ID RANKS OPTIONS` and COMMON say.

    Raises ValueError on a line that no shell would read.
    """
    script = _HERE_DOCUMENT.sub("\n", script)  # the study's own text
    common = shlex.split(found[1]) if (found := _COMMON.search(script)) else []
    lines = [shlex.split(line) for line in _RUN.findall(script)]
    return {run_id: [*common, "--world-size", ranks, *options] for run_id, ranks, *options in lines}


def broken(words: Words, config: RunConfig) -> Iterator[str]:
    """Options that a run's own configuration does not have; one that RunConfig no longer knows cannot be checked."""
    for words_of_one in _options(words):
        name = words_of_one[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if name in RunConfig.model_fields and (found := config.to_words(name)) != words_of_one:
            yield f"{' '.join(found) or name + ' unset'}, but its job script says {' '.join(words_of_one)}"


def _options(words: Words) -> list[Words]:
    options: list[Words] = []
    for word in words:
        if word.startswith("--") or not options:
            options.append([word])
        else:
            options[-1].append(word)
    return options


def unlike(study: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Fields that study.toml fixes, in [run] or in the variant that comes nearest, and that a run has otherwise."""
    values = config.model_dump(mode="json")

    def differences(variant: Mapping[str, Any]) -> list[str]:
        asked = {**study.get("run", {}), **variant}
        names = [name for name in asked if name in values and not (name in EXCHANGE and config.backend == "single")]
        return [f"{name}={values[name]!r}, but study.toml says {asked[name]!r}" for name in names if values[name] != asked[name]]

    return min(map(differences, study.get("variants", {}).values() or [{}]), key=len)


def varied(study: Mapping[str, Any]) -> set[str]:
    """Fields that study.toml's variants set."""
    return {name for variant in study.get("variants", {}).values() for name in variant}
