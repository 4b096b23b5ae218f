"""The doctor, which checks this machine or launch and tries each cell (framework/transport)."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from bench import command
from bench.backends.catalogue import CATALOGUE, engines, frameworks
from bench.config import RunConfig, UsageError, parse_argv
from bench.launch import launcher
from bench.launch.world import Launch, discover
from bench.lifecycle.ending import Pulse
from bench.progress import say
from bench.record import RunLog
from bench.tools.doctor import checks
from bench.tools.doctor.checks import Finding

PROG = "python -m bench doctor"
STEPS = 5  # the first has DDP's first buckets, the others its rebuilt ones
ELEMENTS = 2**16  # compared of each tensor: all of most
_ABOUT = """Look at this machine, then compare the gradients that each cell exchanges between two
ranks with the mean of the ranks' own; with --backend, of that cell alone. Under mpirun, srun,
torchrun or horovodrun: this launch, and this cell.

Five steps are compared, from weights that every rank draws by itself. One line per finding, with
the cure. Exit status: 0 fit (warnings included), 1 a failure was found, 2 the input was wrong."""
_SIZES = ("--batch-per-rank", "--global-batch")
_ALONE_RANKS = 2
_LOOK_S, _TRY_S = 120, 180  # at most; a busy machine imports torch slowly
_CURE = "run python -m bench with this --backend and --transport to see all it prints"


def main(argv: list[str]) -> int:
    """Print findings; return 0 if fit, 1 if not, 2 on wrong input, 128 + n on signal n."""
    findings: Iterable[Finding] = ()
    host, alone, fit = "", False, True
    try:
        launch = discover(os.environ)
        config = parse(argv)
        alone = launch.source == "none"
        host = f"on {socket.gethostname()}: " if launch.rank else ""
        if alone:
            findings = _look(argv, config)
        elif launch.local_rank == 0:
            findings = [checks.own_name(socket.gethostname())]
    except UsageError:
        pass  # said below, as a run says it: by one rank
    for finding in findings:
        fit = fit and finding.level != "failure"
        if not host or finding.level != "ok":  # rank 0 speaks for the launch
            print(finding.line(host), flush=True)
    status = 0
    if not alone:  # --log-path says where ranks of several nodes meet: they run more than one cell
        status = command.start(partial(parse, argv), opening, lambda _: run, keeps_log=False)
    return status or int(not fit)


def _look(argv: Sequence[str], config: RunConfig) -> Iterator[Finding]:
    """Yield findings on this machine without a launcher: libraries, host name, a trial per cell."""
    facts = _probe()
    yield from checks.libraries(facts)
    yield checks.own_name(socket.gethostname())
    if shutil.which("mpirun") is None:
        cure = "activate the environment (. .venv/bin/activate), or run make setup"
        yield Finding("mpirun", "failure", "is not on PATH", cure)
        return
    wires = ("mpi", "gloo", "nccl") if facts["gpus"] else ("mpi", "gloo")
    cells = [(name, w) for w in wires for name in engines() if w in CATALOGUE[name].transports]
    if config.backend in frameworks():
        cells = [(config.backend, config.transport)]
    for backend, transport in cells:
        say(f"... trying {backend}/{transport}")
        size = 1 if transport == "nccl" and facts["gpus"] == 1 else _ALONE_RANKS
        words = ["--backend", backend, "--transport", transport]
        words += ["--world-size", str(max(config.world_size, size))]
        yield _try([*argv, *words])


def _try(argv: Sequence[str]) -> Finding:
    """Run the doctor under mpirun on this machine for the cell in `argv`; return its finding."""
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


def _probe() -> dict[str, Any]:
    """Run probe.look in a new process; return its facts, or the reason in 'errors' if it fails."""
    words = [sys.executable, "-m", "bench.tools.doctor.probe"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_LOOK_S)
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts
    except subprocess.TimeoutExpired:
        reason = f"took more than {_LOOK_S} s"
    except (IndexError, ValueError):
        reason = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    return {"errors": {"libraries": reason}, "gpus": 0}


def parse(argv: Sequence[str]) -> RunConfig:
    """Parse a run's options, of which none is required. Raises UsageError.

    The steps are always the doctor's own, and the learning rate is always 0.
    """
    sized = any(word.partition("=")[0] in _SIZES for word in argv)
    config = parse_argv([*argv, *([] if sized else ["--batch-per-rank", "4"])], PROG, _ABOUT)
    if not config.averages:
        raise UsageError(f"mode={config.mode} takes no mean to compare; use --mode sync")
    # at a rate of 0 the weights stay as rank 0 drew them
    still = {"base_lr": 0.0, "max_lr": None, "windows": 1, "warmup_steps": 3}
    device = {"device": "cuda"} if config.transport == "nccl" else {}
    return config.model_copy(update={**still, **device, "steps_per_window": STEPS - 3})


def opening(config: RunConfig) -> str:
    """Return the line that announces the comparison of gradients."""
    ranks, images = config.world_size, config.samples_per_rank
    work = f"{config.model} at {config.image_size} px, {images} images on each of {ranks} rank(s)"
    return f"parity of {config.cell}: {work}, {STEPS} steps; loading torch ..."


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse) -> bool:
    """Check in a few steps that exchanges give the mean of the ranks' gradients; print a finding.

    Returns False if they do not, or if a rank keeps its own first weights instead of rank 0's.
    Returns True, with a warning printed, if the model's gradients prove nothing.
    """
    from bench.rig import assemble
    from bench.train.checks import digest

    with assemble(
        config,
        launch,
        log,
        pulse,
        parity_steps=range(STEPS),
        parity_elements=ELEMENTS,
        weights_apart=True,
    ) as rig:
        assert rig.parity is not None
        pulse.enter("comparing")
        for _ in range(STEPS):
            rig.loop.step()
            pulse.tick()
        weights = {*rig.backend.gather(digest(rig.workload.network))}
        holds = rig.parity.holds if len(weights) == 1 else False
        steps = rig.parity.record()
        pulse.leave()
        if launch.rank == 0:
            print(_finding(config.cell, steps, holds, len(weights) == 1).line(), flush=True)
    return holds is not False


def _finding(cell: str, steps: list[dict[str, Any]], holds: bool | None, sent: bool) -> Finding:
    """Make a finding: whether parity `holds` (None: unproven), and rank 0's weights were `sent`."""
    from bench.instrument.parity import not_proven

    if holds is None:
        return Finding(cell, "warning", not_proven(steps), "compare with another model")
    worst = max(steps, key=lambda step: step["relative_difference"])
    agrees = "equal bit for bit"
    if ratio := worst["relative_difference"]:
        place = f"in {worst['tensor']} of step {worst['step']}, allowed {worst['allowed']:.1e}"
        agrees = f"max|difference| / max|gradient| {ratio:.1e} {place}"
    text = f"parity {'holds' if holds else 'DOES NOT HOLD'}: {agrees}"
    if not sent:
        text += "; ranks drew other weights, and did not get rank 0's when the model was wrapped"
    if noisy := sorted({name for step in steps for name in step["not_deterministic"]}):
        text += f"; gradients not deterministic: {', '.join(noisy[:3])} ({len(noisy)} tensors)"
    return Finding(cell, "ok" if holds else "failure", text)
