"""A cell's exchange, several times over one step, against the mean of the ranks' own gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.config import RunConfig, UsageError, parse_argv
from bench.launch.world import Launch
from bench.lifecycle.pulse import Pulse
from bench.record import RunLog
from bench.tools.doctor.checks import Finding

if TYPE_CHECKING:  # the options are read before torch is loaded
    from bench.data import Batch
    from bench.instrument.parity import Parity
    from bench.rig import Rig

PROG = "python -m bench doctor"
STEPS = 5  # the first has DDP's first buckets, the others its rebuilt ones
ELEMENTS = 2**16  # compared of each tensor: all of most
_ABOUT = """Look at this machine, then compare the gradients that each cell exchanges between two
ranks with the mean of the ranks' own; with --backend, of that cell alone. Under mpirun, srun,
torchrun or horovodrun: this launch, and this cell.

One step is done five times over, from weights that every rank draws by itself. One line per
finding, with the cure. Exit status: 0 fit (warnings included), 1 a failure was found, 2 the input
was wrong."""
_SIZES = ("--batch-per-rank", "--global-batch", "--config")


def parse(argv: Sequence[str]) -> RunConfig:
    """Read a run's options, of which none is needed. Raises UsageError on bad input."""
    sized = any(word.partition("=")[0] in _SIZES for word in argv)
    config = parse_argv([*argv, *([] if sized else ["--batch-per-rank", "4"])], PROG, _ABOUT)
    if not config.averages:
        raise UsageError(f"mode={config.mode} takes no mean to compare; use --mode sync")
    # at a rate of 0 nothing is learnt, so that every step is the same
    still = {"base_lr": 0.0, "max_lr": None, "windows": 1, "warmup_steps": 3}
    device = {"device": "cuda"} if config.transport == "nccl" else {}
    return config.model_copy(update={**still, **device, "steps_per_window": STEPS - 3})


def opening(config: RunConfig) -> str:
    """Say what is compared, before it is."""
    ranks, images = config.world_size, config.samples_per_rank
    work = f"{config.model} at {config.image_size} px, {images} images on each of {ranks} rank(s)"
    return f"parity of {config.cell}: {work}, one step {STEPS} times; loading torch ..."


def run(config: RunConfig, launch: Launch, log: RunLog, pulse: Pulse) -> bool:
    """Compare: false if the exchanged gradients of a step are not the mean of the ranks' own.

    Every rank draws other weights, so that this fails where rank 0's are not sent to all.
    """
    from bench.randomness import seed_all
    from bench.rig import Trial, assemble

    every: Any = {"parity_steps": range(STEPS), "parity_elements": ELEMENTS}
    trial = Trial(batches_of=_repeated, weights_apart=True, **every)
    with assemble(config, launch, log, pulse, trial=trial) as rig:
        assert rig.parity is not None
        pulse.enter("comparing")
        for _ in range(STEPS):
            seed_all(config.seed)  # of a model that draws, such as with dropout
            rig.step()
            pulse.tick()
        facts = _facts(rig, rig.parity)
        log.write("parity", **facts)
        pulse.passed = facts["holds"] is not False
        log.write("end", status="ok" if pulse.passed else "failed: parity")
        pulse.leave()
        if launch.rank == 0:
            print(_finding(facts).line(), flush=True)
    return pulse.passed


def _repeated(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Take one batch, then always another, by which gradients of the step before are seen."""
    return itertools.chain([next(batches)], itertools.repeat(next(batches)))


def _facts(rig: Rig, parity: Parity) -> dict[str, Any]:
    """Collect the facts of the parity trial; needs every rank's call."""
    from bench.instrument.parity import relative
    from bench.train.checks import digest

    config, backend = rig.config, rig.backend
    # rank 0's as drawn beside what all hold now: one kind of weights in all
    weights = {backend.gather(rig.workload.drawn_sha256)[0]}
    weights |= {*backend.gather(digest(rig.workload.network))}

    # the first step is left out: with other buckets the order of summation is another
    usual, *again = parity.exchanged[1:]
    other = backend.gather([relative(exchanged, usual) for exchanged in again])
    unequal = [any(tensor) for tensor in zip(*itertools.chain.from_iterable(other), strict=True)]
    return {
        **config.model_dump(mode="json", include=set(_TOLD)),
        "cell": config.cell,
        "steps": parity.record(),
        "exchange_not_deterministic": list(itertools.compress(parity.names, unequal)),
        "weights_of_rank_0": len(weights) == 1,
        "holds": parity.holds if len(weights) == 1 else False,
    }


_TOLD = (
    *("world_size", "settings", "model", "precision", "memory_format", "accumulate"),
    *("batch_per_rank", "global_batch", "image_size", "threads", "device"),
)


def _finding(facts: dict[str, Any]) -> Finding:
    """Say the worst step in words, and what is not the same twice."""
    from bench.instrument.parity import not_proven

    worst = max(facts["steps"], key=lambda step: step["relative_difference"])
    difference = f"max|difference| / max|gradient| {worst['relative_difference']:.1e}"
    if worst["tensor"]:
        difference += f" in {worst['tensor']} of step {worst['step']}"
    agrees = "equal bit for bit" if not worst["relative_difference"] else difference
    line = f"parity {'holds' if facts['holds'] else 'DOES NOT HOLD'}: {agrees}"
    line += f" (allowed {worst['allowed']:.1e}), {worst['elements']} elements"
    if not facts["weights_of_rank_0"]:
        line += "; ranks drew other weights, and did not get rank 0's when the model was wrapped"
    noisy = sorted({name for step in facts["steps"] for name in step["not_deterministic"]})
    for noise, names in (("gradients", noisy), ("exchange", facts["exchange_not_deterministic"])):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            line += f"; {noise} not deterministic: {names[0]}{more}"
    if facts["holds"] is None:
        cure = "compare with another model"
        return Finding(facts["cell"], "warning", not_proven(facts["steps"]), cure)
    return Finding(facts["cell"], "ok" if facts["holds"] else "failure", line)
