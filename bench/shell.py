"""Base of the commands of python -m slurm and python -m plots; a mistake is told in one line."""

from __future__ import annotations

import inspect
import io
import os
import sys
import textwrap
from collections.abc import Callable, Sequence

from bench import explain_missing, version
from bench.options import COLUMNS, Options, UsageError, near, wrapped

_MOST_CHARACTERS = 800  # of an error: a file may hold a value of any length


class Command(Options):
    """A command of a program such as python -m slurm; its fields are its options."""

    def run(self) -> int | None:
        """Run the command and return its exit code; None means 0."""
        raise NotImplementedError


class Group(dict[str, "type[Command] | Group"]):
    """Commands, and groups of further commands, by name; `about` says what they are for."""

    def __init__(self, about: str, example: str = "", **commands: type[Command] | Group) -> None:
        super().__init__(commands)
        self.about, self.example = about, example


def call(prog: str, program: Group, argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv`, by default in sys.argv; return an exit code, see `reported`."""
    for name, errors in (("stdout", "surrogateescape"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # UTF-8, whatever the locale
            stream.reconfigure(encoding="utf-8", errors=errors)
    return reported(lambda: _call(prog, program, sys.argv[1:] if argv is None else argv))


def _call(prog: str, commands: Group, argv: Sequence[str]) -> int | None:
    word, rest = (argv[0], argv[1:]) if argv else ("", [])
    if word in ("-h", "--help"):
        print(_overview(prog, commands))
        return 0
    if word == "--version":
        print(version())
        return 0
    if (command := commands.get(word)) is None:
        problem = f"unknown command {word!r}" if word else "no command is named"
        choice = f"; choose one of {', '.join(commands)}; see {prog} --help"
        raise UsageError(f"{problem}{near(word, commands) or choice}")
    if isinstance(command, Group):
        return _call(f"{prog} {word}", command, rest)
    return command.read(rest, f"{prog} {word}").run()


def _overview(prog: str, commands: Group) -> str:
    """Write the help of a program: its commands and what each is for."""
    lines = [f"usage: {prog} COMMAND [options]", "", wrapped(commands.about), "", "commands:"]
    for name, command in commands.items():
        text = command.about if isinstance(command, Group) else inspect.getdoc(command) or ""
        lines.append(_row(name, text.split("\n\n")[0]))
    lines += ["", "options:", _row("-h, --help", "show this help; after a command, its own")]
    lines.append(_row("--version", "print the version and stop"))
    return "\n".join([*lines, *(["", f"example: {commands.example}"] if commands.example else [])])


def _row(name: str, text: str) -> str:
    return textwrap.fill(text, COLUMNS, initial_indent=f"  {name:11}  ", subsequent_indent=" " * 15)


def reported(do: Callable[[], int | None]) -> int:
    """Run `do`; return its code, 130 on Ctrl-C, or print a Usage-, OS- or ImportError, return 2."""
    trace, code = "", 1  # of the user's own code
    try:
        code = do() or 0
        sys.stdout.flush()
        return code
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(bool(ending.code))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # a reader that has gone, as `head`
        _drop_output()
        return code
    except ImportError as error:  # some are loaded only where they are needed
        text = explain_missing(error)
    except UsageError as error:
        text, trace = str(error), getattr(error, "trace", "")
    except OSError as error:
        text = f"{error.filename or 'standard output'}: {error.strerror or error}"
        if error.filename is None:
            _drop_output()
    lines = [f"error: {_one_line(text)}", *filter(None, [trace])]
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    return 2


def _drop_output() -> None:
    """Send standard output to the null device, so that no write fails again at exit."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - no path
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _one_line(text: str) -> str:
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    half = _MOST_CHARACTERS // 2
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:half]} ... {line[-half:]}"
