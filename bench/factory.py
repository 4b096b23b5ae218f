"""Import and call of functions that options name as package.module:function."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.config import UsageError

_BENCH = Path(__file__).parent
_WAY_OUT = "give package.module:factory, importable from here"


class OwnCodeError(UsageError):
    """A failure of the user's own code, told in one line; `trace` is the traceback, or ''."""

    def __init__(self, message: str, error: Exception) -> None:
        self.trace = _trace(error)
        follows = ", its traceback follows" if self.trace else ""
        super().__init__(f"{message} ({in_words(error)}); mend it{follows}")


def make(field: str, name: str, argument: object, **offered: object) -> Any:
    """Import the factory `name`, call it with `argument`, and return its result.

    Keywords of `offered` are passed only if the factory has a parameter of that name. If the import
    or the call fails, raises a UsageError that names the option, `field`.
    """
    factory = function(field, name)
    try:
        return factory(argument, **{k: v for k, v in offered.items() if takes(factory, k)})
    except Exception as error:
        failed = f"{field}={name!r}: the factory, called with one argument, failed"
        raise OwnCodeError(failed, error) from None


def function(field: str, name: str) -> Callable[..., Any]:
    """Import and return `package.module:function`. If it fails, the UsageError names `field`."""
    setting = f"{field}={name!r}"
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        absent = not _trace(error)  # or it cannot be a module's name
        if isinstance(error, ModuleNotFoundError):  # else the module lacks another
            absent = error.name is None or f"{module_name}.".startswith(f"{error.name}.")
        if absent:
            raise UsageError(f"{setting}: {in_words(error)}; {_WAY_OUT}") from None
        raise OwnCodeError(f"{setting}: importing {module_name} failed", error) from None
    factory = getattr(module, function_name, None)
    if not callable(factory):
        kind = f"a {type(factory).__name__}, not a function"
        if factory is None:
            kind = f"absent: module {module_name!r} has no attribute {function_name!r}"
        raise UsageError(f"{setting} is {kind}; {_WAY_OUT}")
    return factory  # type: ignore[no-any-return]


def takes(factory: Callable[..., Any], parameter: str) -> bool:
    """Check whether a factory has the parameter; return False if its signature is unknown."""
    try:
        return parameter in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False


def in_words(error: BaseException) -> str:
    """Describe an error by its type and first line; by its type alone if str(error) fails."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return ": ".join([type(error).__name__, *lines[:1]])


def _trace(error: Exception) -> str:
    """Format an error with its traceback from user code on; '' if no user code raised it."""
    place = error.__traceback__
    while place is not None:
        file = place.tb_frame.f_code.co_filename
        imports = file == importlib.__file__ or file.startswith("<frozen importlib")
        if not imports and not Path(file).is_relative_to(_BENCH):
            break
        place = place.tb_next
    if place is None and not isinstance(error, SyntaxError):
        return ""
    return "".join(traceback.format_exception(type(error), error, place)).rstrip()
