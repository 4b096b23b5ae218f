"""The doctor's round: look at this machine or launch, then try its cells, and say it all."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bench import command
from bench.backends.catalogue import CATALOGUE, engines, frameworks
from bench.config import RunConfig, UsageError
from bench.launch import launcher
from bench.launch.world import Launch, discover, meeting_folder
from bench.streams import say
from bench.tools.doctor import checks
from bench.tools.doctor.checks import Finding, Level
from bench.tools.doctor.trial import PROG, opening, parse, run

_ALONE_RANKS = 2
_LOOK_S, _TRY_S = 120, 180  # at most; a busy machine imports torch slowly
_TRY = [sys.executable, *PROG.split()[1:]]
_RESULT = re.compile(r"^(?P<level>ok|warning|failure) +(?P<cell>\S+/\S+) +(?P<text>.*)$", re.M)
_CURE = "run python -m bench with this --backend and --transport to see all it prints"


class _Answer:
    """Findings, printed as they come; only bad ones where another process speaks for the launch."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self.levels: list[str] = []

    def add(self, finding: Finding) -> None:
        self.levels.append(finding.level)
        if not self._where or finding.level != "ok":
            print(finding.line(self._where), flush=True)

    def finish(self) -> int:
        counts = (f"{self.levels.count(level)} {level}" for level in ("ok", "warning", "failure"))
        print(f"-- {', '.join(counts)}", flush=True)
        return int("failure" in self.levels)


def main(argv: list[str]) -> int:
    """Exit status: 0 fit, 1 a failure was found, 2 the input was wrong."""
    try:
        launch = discover(os.environ)
        config = parse(argv)
    except UsageError:  # said as a run says it, by one rank
        return command.start(partial(parse, argv), opening, lambda _: run)
    if launch.source == "none":
        return _alone(argv, config, launch)
    return _launched(argv, config, launch)


def _launched(argv: Sequence[str], config: RunConfig, launch: Launch) -> int:
    """Look at this rank's host, once a host, and compare this cell."""
    answer = _Answer(f"on {socket.gethostname()}: " if launch.rank else "")
    if launch.local_rank == 0:
        facts, problem = _probe("mpi4py")
        if "mpi" in facts:
            answer.add(checks.mpi_started(launch, facts["mpi"], os.environ))
        else:
            answer.add(Finding("MPI", "warning", problem or str(facts["errors"]), _CURE))
        for finding in _host(config, launch):
            answer.add(finding)
    status = command.start(partial(parse, argv), opening, lambda _: run)
    answer.levels += ["failure" if status else "ok"]
    if launch.rank:
        return status or int("failure" in answer.levels)
    return answer.finish() and (status or 1)


def _alone(argv: Sequence[str], config: RunConfig, launch: Launch) -> int:
    """Look at this machine, then start ranks on it for each cell."""
    answer = _Answer()
    facts, problem = _probe()
    if problem:
        answer.add(Finding("libraries", "failure", f"importing them {problem}", "run make setup"))
    else:
        findings = [*checks.libraries(facts), *checks.horovod_build(checks.build_record(), facts)]
        for finding in [*findings, *checks.nccl(facts)]:
            answer.add(finding)
    for finding in _host(config, launch):
        answer.add(finding)
    mpirun = shutil.which("mpirun")
    answer.add(checks.mpirun(mpirun, _version(mpirun) if mpirun else "", facts.get("mpi")))
    gpus = facts.get("gpus", 0)
    for cell in _cells(config, gpus) if mpirun else ():
        say(f"... trying {cell}")
        answer.add(_try(argv, config, cell, 1 if cell.endswith("/nccl") and gpus == 1 else None))
    return answer.finish()


def _cells(config: RunConfig, gpus: int) -> list[str]:
    """Choose the framework/transport pairs to try: the one that was named, or all that can be."""
    if config.backend in frameworks():
        return [config.cell]
    over = ("mpi", "gloo", "nccl") if gpus else ("mpi", "gloo")
    pairs = ((name, transport) for transport in over for name in engines())
    return [f"{name}/{over}" for name, over in pairs if over in CATALOGUE[name].transports]


def _try(argv: Sequence[str], config: RunConfig, cell: str, ranks: int | None) -> Finding:
    """Start this command on some ranks of this machine, for one cell; its word on that."""
    backend, transport = cell.split("/")
    size = ranks or max(config.world_size, _ALONE_RANKS)
    words = ["--backend", backend, "--transport", transport, "--world-size", str(size)]
    config = parse([*argv, *words])
    start = launcher.command("mpirun", config.world_size, args=launcher.ON_THIS_MACHINE)
    try:
        done = subprocess.run(
            [*start, *_TRY, *argv, *words],
            env={**os.environ, **launcher.root_variables()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRY_S,
        )
    except subprocess.TimeoutExpired:
        return Finding(cell, "failure", f"no answer within {_TRY_S} s", _CURE)
    for match in _RESULT.finditer(done.stdout):
        if match["cell"] == cell:
            level: Level = "ok" if match["level"] == "ok" else "warning"
            level = "failure" if done.returncode else level
            return Finding(cell, level, match["text"])
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    reason = (lines or [f"ended with status {done.returncode}"])[0].removeprefix("error: ")
    return Finding(cell, "failure", reason, "" if lines else _CURE)


def _host(config: RunConfig, launch: Launch) -> Iterator[Finding]:
    """Check what this host gives to a rank: interface, name, folders, data."""
    local = [name for _, name in socket.if_nameindex()]
    several = launch.local_size < launch.size
    yield from checks.interfaces(os.environ, local, several_hosts=several)
    yield checks.own_name(socket.gethostname())
    try:
        yield checks.folder(meeting_folder(launch, config.log_path), "ranks meet in", "--log-path")
    except UsageError as error:
        yield Finding("folder", "failure", error.text, error.cure)
    if config.log_path is not None:
        yield checks.folder(config.log_path.parent, "logs go to", "--log-path")
    yield checks.data(config.dataset, config.data_dir)


def _probe(*names: str) -> tuple[dict[str, Any], str]:
    """Ask a process of its own what is installed, and why it does not tell."""
    # close_fds=False: under Hydra a rank talks to its daemon over an inherited descriptor
    words = [sys.executable, "-m", "bench.tools.doctor.probe", *names]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_LOOK_S, close_fds=False
        )
        return json.loads(done.stdout.splitlines()[-1]), ""
    except subprocess.TimeoutExpired:
        return {}, f"took more than {_LOOK_S} s"
    except (IndexError, ValueError):
        lines = done.stderr.strip().splitlines() or ["nothing was printed"]
        return {}, f"ended with status {done.returncode}: {lines[-1]}"


def _version(mpirun: str) -> str:
    """Ask mpirun for its version; return the answer, or why there is none."""
    try:
        done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout + done.stderr
