"""Command lines from pydantic models: the fields are the options, the docstring is the help."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NoReturn, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

COLUMNS = 79  # of a description


class UsageError(ValueError):
    """The user's mistake in one line: value, rule and way out. Programs print it and exit 2."""


def near(name: str, valid: Iterable[str]) -> str:
    """Suggest the closest valid name as '; did you mean ...?', or return '' if none is close."""
    by_letters = {word.lstrip("-"): word for word in valid}  # two dashes make no two flags alike
    close = difflib.get_close_matches(name.lstrip("-"), by_letters, n=1)
    return f"; did you mean {by_letters[close[0]]!r}?" if close else ""


def explain(error: ValidationError, keys: Iterable[str] = ()) -> str:
    """Explain the first broken rule of a pydantic error in one line, 'name=value: rule'.

    An unknown key is explained before other errors, with the closest of `keys` as a suggestion.
    """
    errors = error.errors()
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {name!r}{near(str(first['loc'][-1]), keys)}"
    if first["type"] == "missing":
        return f"key {name!r} is missing; add it"
    rule = re.sub("^Value error, |^(Input|Tuple) (?=should)", "", first["msg"])
    return f"{name}={first['input']!r}: {rule}" if name else rule


class Shown:
    """A field's form on the command line, if it does not follow from the field's name and type.

    A `word` in capitals makes a positional argument with that metavar; a word such as '-o' adds a
    short flag. `keywords` go to argparse's `add_argument`.
    """

    def __init__(self, word: str = "", **keywords: Any) -> None:
        self.word, self.keywords = word, keywords

    @property
    def positional(self) -> bool:
        return self.word.isupper()


def split_commas(value: object) -> object:
    """Split a text at its commas into a tuple; make a list a tuple; return other values as is."""
    if isinstance(value, str):
        return tuple(filter(None, value.split(",")))
    return tuple(value) if isinstance(value, list) else value


def option(default: Any, text: str, shown: Shown | None = None, **limits: Any) -> Any:
    """Make a field with help `text`. Default `...` means required; `limits` are pydantic's."""
    info: FieldInfo = Field(default, description=text, **limits)
    info.metadata += [shown] if shown else []
    return info


class Options(BaseModel):
    """A model whose fields are options; their types convert and check the command line's texts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True
    )
    # in --help, each group begins with this field and ends before the next
    groups: ClassVar[Mapping[str, str]] = {}
    example: ClassVar[str] = ""
    switches_back: ClassVar[bool] = False  # whether --no-X takes a switch back, as of a file
    hidden: ClassVar[Collection[str]] = ()  # fields that are no options of this command

    @classmethod
    def read(cls, argv: Sequence[str], prog: str) -> Self:
        """Read the options in `argv`. --help prints and exits 0; raises UsageError on bad input."""
        parser = new_parser(cls, prog)
        return cls.checked(read_words(parser, argv), prog)

    @classmethod
    def checked(cls, words: Mapping[str, Any], prog: str) -> Self:
        """Make options from texts by field name. Raises UsageError with flag and broken rule."""
        try:
            return cls(**words)
        except ValidationError as error:
            first = error.errors()[0]
        if isinstance(mistake := first.get("ctx", {}).get("error"), UsageError):
            raise mistake
        name = "".join(_named(cls, str(part)) for part in first["loc"][:1])
        problem = f"{name} {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
        if first["type"] == "missing":
            problem = f"{name} is missing"
        raise UsageError(problem if "; " in problem else f"{problem}; see {prog} --help")

    def to_argv(self) -> list[str]:
        """Return a command line's words for all fields that are not at their defaults."""
        fields = type(self).model_fields.items()
        changed = (name for name, field in fields if getattr(self, name) != field.default)
        return [word for name in changed for word in self.to_words(name)]

    def to_words(self, name: str) -> list[str]:
        """Return a command line's words for a field, even at its default; [] for the value None."""
        value = self.model_dump(mode="json", include={name})[name]
        if value is None:
            return []
        flag = flag_of(name)
        if isinstance(value, bool):
            return [flag if value else "--no-" + flag[2:]]
        return [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError for a wrong argument, instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(field: FieldInfo) -> Shown:
    return next((each for each in field.metadata if isinstance(each, Shown)), Shown())


def _named(model: type[Options], name: str) -> str:
    """Return a field's flag, or its metavar if it is a positional argument."""
    fields = model.model_fields.items()
    shown = _shown(next(field for key, field in fields if name in (key, field.alias)))
    return shown.word if shown.positional else flag_of(name)


def new_parser(model: type[Options], prog: str, usage: str = "", about: str = "") -> Parser:
    """Make a parser for a model. Help shows `usage` and `about` in place of the model's own."""
    fields = model.model_fields
    needed = [_named(model, name) for name in _offered(model) if fields[name].is_required()]
    needed = [f"{word} {word[2:].upper()}" if word[0] == "-" else word for word in needed]
    parser = Parser(
        prog=prog,
        usage=usage or " ".join([prog, *needed, "[options]"]),
        description=wrapped(about or inspect.getdoc(model) or ""),
        epilog=model.example and f"example: {model.example}",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, model)
    return parser


def wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, COLUMNS) for part in text.split("\n\n"))


def add_options(parser: Parser, model: type[Options], only: Collection[str] = ()) -> None:
    """Add options for the fields in `only`, or for all that are not hidden, with their help."""
    group = parser.add_argument_group() if model.groups and not only else parser
    for name in only or _offered(model):
        field = model.model_fields[name]
        if name in model.groups and not only:
            group = parser.add_argument_group(model.groups[name])
        shown, key, choices = _shown(field), field.alias or name, _choices(field.annotation)
        switch = field.annotation is bool and not model.switches_back
        default = "" if switch or field.is_required() else field.default
        # of a tuple, the description says it
        says = default not in (None, "") and not isinstance(default, tuple)
        default = f" (default: {default})" if says else ""
        how: dict[str, Any] = {"help": f"{field.description}{default}".replace("%", "%%")}
        flags = [flag_of(key), *filter(None, [shown.word])]
        if field.annotation is bool:
            how["action"] = "store_true" if switch else argparse.BooleanOptionalAction
        elif shown.positional:
            flags, how = [key], {**how, "nargs": "?", "metavar": shown.word}
        else:
            how["metavar"] = "{" + ",".join(choices) + "}" if choices else key.upper()
        group.add_argument(*flags, **how | shown.keywords)


def _offered(model: type[Options]) -> list[str]:
    return [name for name in model.model_fields if name not in model.hidden]


def _choices(kind: Any) -> tuple[str, ...]:
    """Return the words of a Literal, or of a `Literal | None`; () for any other type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return next((_choices(each) for each in get_args(kind) if each is not NoneType), ())
    return ()


def read_words(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """Return `argv`'s options by field name, as texts (switches: bool). Raises UsageError."""
    namespace, unknown = parser.parse_known_intermixed_args(argv)
    for word in unknown:
        kind = "option" if word.startswith("-") else "argument"
        hint = near(word.partition("=")[0], parser._option_string_actions)
        raise UsageError(f"unknown {kind} {word!r}{hint or f'; see {parser.prog} --help'}")
    return vars(namespace)
