"""The doctor's round: look at this machine or launch, then try its cells, and say it all."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from bench import command
from bench.backends.catalogue import CATALOGUE, engines, frameworks
from bench.config import RunConfig, UsageError
from bench.launch import launcher
from bench.launch.world import Launch, discover, meeting_folder
from bench.streams import say
from bench.tools.doctor import checks
from bench.tools.doctor.checks import Finding
from bench.tools.doctor.trial import PROG, opening, parse, run

_ALONE_RANKS = 2
_LOOK_S, _TRY_S = 120, 180  # at most; a busy machine imports torch slowly
_CURE = "run python -m bench with this --backend and --transport to see all it prints"


def main(argv: list[str]) -> int:
    """Exit status: 0 fit, 1 a failure was found, 2 the input was wrong."""
    findings: Iterable[Finding] = ()
    host, alone, fit = "", False, True
    try:
        launch = discover(os.environ)
        config = parse(argv)
        alone = launch.source == "none"
        host = f"on {socket.gethostname()}: " if launch.rank else ""
        if alone:
            findings = _machine(argv, config, launch)
        elif launch.local_rank == 0:
            findings = _node(config, launch)
    except UsageError:
        pass  # said below, as a run says it: by one rank
    for finding in findings:
        fit = fit and finding.level != "failure"
        if not host or finding.level != "ok":  # rank 0 speaks for the launch
            print(finding.line(host), flush=True)
    status = 0 if alone else command.start(partial(parse, argv), opening, lambda _: run)
    return status or int(not fit)


def _node(config: RunConfig, launch: Launch) -> Iterator[Finding]:
    """Check this rank's MPI and host."""
    facts = _probe("mpi4py")
    if "mpi" in facts:
        yield checks.mpi_started(launch.source, facts["mpi"], os.environ)
    else:
        yield Finding("MPI", "warning", str(facts["errors"]), _CURE)
    yield from _host(config, launch)


def _machine(argv: Sequence[str], config: RunConfig, launch: Launch) -> Iterator[Finding]:
    """Check this machine, then start ranks on it for each cell."""
    facts = _probe()
    yield from checks.libraries(facts)
    yield from _host(config, launch)
    if (mpirun := shutil.which("mpirun")) is None:
        cure = "activate the environment (. .venv/bin/activate), or run make setup"
        yield Finding("mpirun", "failure", "is not on PATH", cure)
        return
    done = subprocess.run([mpirun, "--version"], capture_output=True, text=True)
    yield checks.mpi_started(
        checks.kind(done.stdout), facts.get("mpi", "an MPI that does not load"), os.environ
    )
    wires = ("mpi", "gloo", "nccl") if facts["gpus"] else ("mpi", "gloo")
    cells = [(name, w) for w in wires for name in engines() if w in CATALOGUE[name].transports]
    if config.backend in frameworks():
        cells = [(config.backend, config.transport)]
    for backend, transport in cells:
        say(f"... trying {backend}/{transport}")
        size = 1 if transport == "nccl" and facts["gpus"] == 1 else _ALONE_RANKS
        words = ["--backend", backend, "--transport", transport]
        words += ["--world-size", str(max(config.world_size, size))]
        # a log under the name that was given would refuse the next cell, and the run itself
        with tempfile.TemporaryDirectory() as folder:
            yield _try([*argv, *words, "--log-path", f"{folder}/trial.jsonl"])


def _try(argv: Sequence[str]) -> Finding:
    """Start this command on some ranks of this machine, for one cell; its word on that."""
    config = parse(argv)
    start = launcher.command("mpirun", config.world_size, args=launcher.ON_THIS_MACHINE)
    try:
        done = subprocess.run(
            [*start, sys.executable, *PROG.split()[1:], *argv],
            env={**os.environ, **launcher.root_variables()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRY_S,
        )
    except subprocess.TimeoutExpired:
        return Finding(config.cell, "failure", f"no answer within {_TRY_S} s", _CURE)
    if answer := re.search(rf"^(\w+) +{config.cell} +(.*)$", done.stdout, re.MULTILINE):
        return Finding(config.cell, "failure" if done.returncode else answer[1], answer[2])
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    reason = (errors or [f"ended with status {done.returncode}"])[0].removeprefix("error: ")
    return Finding(config.cell, "failure", reason, "" if errors else _CURE)


def _host(config: RunConfig, launch: Launch) -> Iterator[Finding]:
    """Check what this host gives to a rank: interface, name, folders, data."""
    existing = [name for _, name in socket.if_nameindex()]
    several = launch.local_size < launch.size
    yield from checks.interfaces(os.environ, existing, several_hosts=several)
    yield checks.own_name(socket.gethostname())
    try:
        yield checks.folder(meeting_folder(launch, config.log_path), "ranks meet in", "--log-path")
    except UsageError as error:
        text, _, cure = str(error).partition("; ")
        yield Finding("folder", "failure", text, cure)
    if config.log_path is not None:
        yield checks.folder(config.log_path.parent, "logs go to", "--log-path")
    yield checks.data(config.dataset, config.data_dir)


def _probe(*names: str) -> dict[str, Any]:
    """Ask a process of its own what is installed."""
    # close_fds=False: under Hydra a rank talks to its daemon over an inherited descriptor
    words = [sys.executable, "-m", "bench.tools.doctor.probe", *names]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_LOOK_S, close_fds=False
        )
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts
    except subprocess.TimeoutExpired:
        reason = f"took more than {_LOOK_S} s"
    except (IndexError, ValueError):
        reason = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return {"errors": {"libraries": reason}, "gpus": 0}
