"""A cell's exchange, in five steps, against the mean of the ranks' own gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.config import RunConfig, UsageError, parse_argv
from bench.launch.world import Launch
from bench.lifecycle.ending import Pulse
from bench.record import RunLog
from bench.tools.doctor.checks import Finding

PROG = "python -m bench doctor"
STEPS = 5  # the first has DDP's first buckets, the others its rebuilt ones
ELEMENTS = 2**16  # compared of each tensor: all of most
_ABOUT = """Look at this machine, then compare the gradients that each cell exchanges between two
ranks with the mean of the ranks' own; with --backend, of that cell alone. Under mpirun, srun,
torchrun or horovodrun: this launch, and this cell.

Five steps are compared, from weights that every rank draws by itself. One line per finding, with
the cure. Exit status: 0 fit (warnings included), 1 a failure was found, 2 the input was wrong."""
_SIZES = ("--batch-per-rank", "--global-batch", "--config")


def parse(argv: Sequence[str]) -> RunConfig:
    """Read a run's options, of which none is needed. Raises UsageError on bad input."""
    sized = any(word.partition("=")[0] in _SIZES for word in argv)
    config = parse_argv([*argv, *([] if sized else ["--batch-per-rank", "4"])], PROG, _ABOUT)
    if not config.averages:
        raise UsageError(f"mode={config.mode} takes no mean to compare; use --mode sync")
    # at a rate of 0 the weights stay as rank 0 drew them
    still = {"base_lr": 0.0, "max_lr": None, "windows": 1, "warmup_steps": 3}
    device = {"device": "cuda"} if config.transport == "nccl" else {}
    return config.model_copy(update={**still, **device, "steps_per_window": STEPS - 3})


def opening(config: RunConfig) -> str:
    """Say what is compared, before it is."""
    ranks, images = config.world_size, config.samples_per_rank
    work = f"{config.model} at {config.image_size} px, {images} images on each of {ranks} rank(s)"
    return f"parity of {config.cell}: {work}, {STEPS} steps; loading torch ..."


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse) -> bool:
    """Compare: false if the exchanged gradients of a step are not the mean of the ranks' own.

    Every rank draws other weights, so that this fails where rank 0's are not sent to all.
    """
    from bench.rig import Trial, assemble
    from bench.train.checks import digest

    trial = Trial(weights_apart=True, parity_steps=range(STEPS), parity_elements=ELEMENTS)
    with assemble(config, launch, log, pulse, trial=trial) as rig:
        assert rig.parity is not None
        pulse.enter("comparing")
        for _ in range(STEPS):
            rig.step()
            pulse.tick()
        gather = rig.backend.gather
        weights = {gather(rig.workload.drawn_sha256)[0], *gather(digest(rig.workload.network))}
        holds = rig.parity.holds if len(weights) == 1 else False
        steps = rig.parity.record()
        log.write("parity", cell=config.cell, steps=steps, holds=holds)
        pulse.passed = holds is not False
        log.write("end", status="ok" if pulse.passed else "failed: parity")
        pulse.leave()
        if launch.rank == 0:
            print(_finding(config.cell, steps, holds, len(weights) == 1).line(), flush=True)
    return pulse.passed


def _finding(cell: str, steps: list[dict[str, Any]], holds: bool | None, sent: bool) -> Finding:
    """Say the worst step in words, and what is not the same twice."""
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
