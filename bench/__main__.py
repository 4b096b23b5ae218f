"""Entry point of python -m bench; Ctrl-C while modules still load ends it without a traceback."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    from bench import give_up

    try:
        from bench.command import main
    except ModuleNotFoundError as missing:
        give_up(missing)

    sys.exit(main(sys.argv[1:]))
