"""Which fields of a run go together: every rule names the value, the reason and the way out.

What one framework cannot do as others do is refused here, rather than measured as if it were the
same.
"""

from __future__ import annotations

import unicodedata

from bench.backends.catalogue import CATALOGUE, frameworks, takers
from bench.config.fields import Fields, fields_with
from bench.config.roles import Role

DIGITS_SAMPLES = 1797
BUILT_IN = ("synthetic", "digits")  # need no folder
ON_DISK = ("svhn", "cifar10", "cifar100", "imagefolder")


def require_text(name: str, value: str) -> None:
    """Raise ValueError for what no log, file name or terminal can hold: control characters, and
    bytes that are no UTF-8.
    """
    if not value:
        raise ValueError(f"{name}='' is empty; leave it out, or give a value")
    if bad := next((c for c in value if unicodedata.category(c) in ("Cc", "Cs")), None):
        what = (
            "bytes that are no UTF-8"
            if unicodedata.category(bad) == "Cs"
            else f"the control character {bad!r}"
        )
        raise ValueError(f"{name}={value!r} holds {what}; use another name")


def check(c: Fields) -> None:
    """Raise ValueError with one line for the first rule that `c` breaks."""
    for rule in (_world, _batch, _data, _device, _precision, _exchange, _knobs):
        rule(c)


def _world(c: Fields) -> None:
    if c.backend not in CATALOGUE:
        raise ValueError(f"backend={c.backend!r} is none of {', '.join(CATALOGUE)}")
    transports = CATALOGUE[c.backend].transports
    if not transports and (c.world_size != 1 or c.transport != "none"):
        raise ValueError(
            f"backend={c.backend} is one process without transport, not world_size={c.world_size} "
            f"transport={c.transport}; use --backend {' or '.join(frameworks())}"
        )
    if transports and c.transport == "none":
        raise ValueError(
            f"backend={c.backend} needs a transport; use --transport {' or '.join(transports)}"
        )
    if transports and c.transport not in transports:
        raise ValueError(
            f"backend={c.backend} has no transport={c.transport}; use --transport "
            f"{' or '.join(transports)}"
        )


def _batch(c: Fields) -> None:
    if (c.global_batch is None) == (c.batch_per_rank is None):
        raise ValueError(
            "give exactly one of global_batch (strong scaling) and batch_per_rank (weak scaling)"
        )
    if c.global_batch is not None and c.global_batch % c.world_size:
        below = c.global_batch // c.world_size * c.world_size
        near = f"{below} or {below + c.world_size}" if below else str(c.world_size)
        raise ValueError(
            f"global_batch={c.global_batch} does not divide by world_size={c.world_size}; use "
            f"{near}"
        )
    if c.nesterov and c.momentum == 0:
        raise ValueError(
            "nesterov is a form of momentum, and momentum=0; use --momentum 0.9, or leave "
            "nesterov out"
        )
    if c.samples_per_rank % c.accumulate:
        raise ValueError(
            f"accumulate={c.accumulate} does not divide the {c.samples_per_rank} images of a "
            f"rank's step: micro-batches of "
            "unequal size would weigh their images unequally; choose a divisor"
        )


def _data(c: Fields) -> None:
    own = ":" in c.dataset
    if not own and c.dataset not in BUILT_IN + ON_DISK:
        raise ValueError(
            f"dataset={c.dataset!r} is none of {', '.join(BUILT_IN + ON_DISK)}; or give "
            f"package.module:factory for your own"
        )
    if c.data_dir is not None and c.dataset in BUILT_IN:
        raise ValueError(
            f"dataset={c.dataset} is built in and reads no data_dir={str(c.data_dir)!r}; leave it "
            f"out"
        )
    if c.data_dir is None and c.dataset in ON_DISK:
        raise ValueError(f"dataset={c.dataset} lives on disk; use --data-dir FOLDER")
    if c.dataset == "digits" and c.image_size % 8:
        low = c.image_size // 8 * 8
        raise ValueError(
            f"image_size={c.image_size}: digits are 8 x 8 pixels, enlarged whole; use {low} or "
            f"{low + 8}"
        )
    if c.dataset == "digits" and c.samples_per_step > DIGITS_SAMPLES:
        raise ValueError(
            f"a step takes {c.samples_per_step} samples, but digits has {DIGITS_SAMPLES}; use a "
            f"smaller batch"
        )
    if c.dataset == "synthetic" and c.sharding == "fixed":
        raise ValueError(
            "sharding=fixed divides a data set, and synthetic images are endless; leave it out"
        )


def _device(c: Fields) -> None:
    if c.device == "cuda" and c.transport in ("mpi", "gloo"):
        raise ValueError(
            f"transport={c.transport} carries CPU tensors; with device=cuda use --transport nccl"
        )
    if c.device == "cpu" and c.transport == "nccl":
        raise ValueError(
            "transport=nccl carries CUDA tensors; with device=cpu use --transport mpi or gloo"
        )
    if c.sync_batchnorm and c.device == "cpu":
        raise ValueError(
            "sync_batchnorm needs device=cuda: no framework has it for the CPU; leave it out"
        )


def _precision(c: Fields) -> None:
    if c.precision == "tf32" and c.device == "cpu":
        raise ValueError(
            "precision=tf32 is a mode of CUDA's matrix units; with device=cpu use float32 or "
            "bf16-mixed"
        )
    if c.precision == "float64" and c.memory_format == "channels_last" and c.device == "cuda":
        raise ValueError(
            "precision=float64 has no channels_last kernels on CUDA; use --memory-format contiguous"
        )


def _exchange(c: Fields) -> None:
    facts = CATALOGUE[c.backend]
    for name in fields_with(Role.EXCHANGE):
        if not facts.transports and getattr(c, name) != Fields.model_fields[name].default:
            raise ValueError(
                f"{name}={getattr(c, name)} is about the exchange, and backend={c.backend} has "
                f"none; leave it out"
            )
    for (name, value), reason in facts.refused.items():
        if getattr(c, name) == value:
            raise ValueError(f"{name}={value}: {reason}")
    if c.compression != "none" and c.precision not in ("float32", "tf32", "bf16-mixed"):
        raise ValueError(
            f"compression={c.compression} is for float32 gradients, not those of "
            f"precision={c.precision}; leave it out"
        )
    if c.compile and c.unused_parameters:
        raise ValueError(
            "compile and unused_parameters: a search for unused parameters does not see into a "
            "compiled graph"
        )


def _knobs(c: Fields) -> None:
    """A knob that the chosen framework lacks, or that `matched` fixes, is refused: it would be
    recorded without effect.
    """
    given = [knob for knob in fields_with(Role.KNOB) if getattr(c, knob) is not None]
    taken = CATALOGUE[c.backend].knobs
    for knob in given:
        if knob not in taken.get(c.settings, ()):
            raise ValueError(
                f"{knob} has no effect with backend={c.backend} settings={c.settings}, but with "
                f"{takers(knob)}; leave it out, or change --settings"
            )
    if not given and c.settings == "tuned":
        knobs = ", ".join(taken.get("tuned", ())) or "it has none"
        raise ValueError(
            f"settings=tuned sets at least one knob of backend={c.backend} ({knobs}); none is given"
        )
