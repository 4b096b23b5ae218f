"""What job scripts and study.toml promised of every run, and where a log says otherwise: pure
functions of their texts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import ValidationError, model_validator

from bench.config import RunConfig
from plots.analyse.comparability import EXCHANGE

Words = list[str]
_HERE_DOCUMENT = re.compile(r"<<'(END_OF_STUDY_*)'\n.*?\n\1\n", re.DOTALL)
_COMMON = re.compile(r"^COMMON=\(\n(.*?)^\)", re.DOTALL | re.MULTILINE)
_RUN = re.compile(r"^run ([^(\s].*)$", re.MULTILINE)


def promised(script: str) -> dict[str, Words]:
    """Options of `python -m bench` for each run id of a job script, as its lines `run ID RANKS
    OPTIONS` and COMMON say.

    Raises ValueError on a line that no shell would read.
    """
    script = _HERE_DOCUMENT.sub("\n", script)  # the study's own text
    common = shlex.split(found[1]) if (found := _COMMON.search(script)) else []
    lines = [shlex.split(line) for line in _RUN.findall(script)]
    return {run_id: [*common, "--world-size", ranks, *options] for run_id, ranks, *options in lines}


def broken(words: Words, config: RunConfig) -> Iterator[str]:
    """Options that a run's own configuration does not have; one that RunConfig no longer knows
    cannot be checked.
    """
    for words_of_one in _options(words):
        name = words_of_one[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if name in RunConfig.model_fields and (found := config.to_words(name)) != words_of_one:
            yield (
                f"{' '.join(found) or name + ' unset'}, but its job script says "
                f"{' '.join(words_of_one)}"
            )


def _options(words: Words) -> list[Words]:
    options: list[Words] = []
    for word in words:
        if word.startswith("--") or not options:
            options.append([word])
        else:
            options[-1].append(word)
    return options


def unlike(study: Mapping[str, Any], config: RunConfig) -> list[str]:
    """Fields that study.toml fixes, in [run] or in the variant that comes nearest, and that a run
    has otherwise.
    """
    values = config.model_dump(mode="json")

    def differences(variant: Mapping[str, Any]) -> list[str]:
        said = {**study.get("run", {}), **variant}
        asked = {
            k: v
            for k, v in as_recorded(said).items()
            if not (k in EXCHANGE and config.backend == "single")
        }
        return [
            f"{k}={values[k]!r}, but study.toml says {said[k]!r}"
            for k, v in asked.items()
            if values[k] != v
        ]

    return min(map(differences, study.get("variants", {}).values() or [{}]), key=len)


class _Alone(RunConfig):
    """A run's fields, each checked alone and not with the others."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        return self


def as_recorded(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Values of study.toml as a run's log has them: 0 as 0.0, "data/" as "data"; what is no field
    of a run is left out.

    Fields alone are checked, not which of them go together; a value that no run could have stays as
    it is.
    """
    return {
        name: _as_recorded(name, value)
        for name, value in asked.items()
        if name in RunConfig.model_fields
    }


def _as_recorded(name: str, value: Any) -> Any:
    try:
        return _Alone.model_validate({name: value}).model_dump(mode="json", include={name})[name]
    except ValidationError:
        return value


def varied(study: Mapping[str, Any]) -> set[str]:
    """Fields that study.toml's variants set."""
    return {name for variant in study.get("variants", {}).values() for name in variant}
