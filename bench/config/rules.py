"""Rules between the fields of a run; each message names the value, the reason and the way out.

A setting is refused for a framework that cannot carry it out as the other frameworks do.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain

from bench.backends.catalogue import CATALOGUE, USERS, frameworks, takers
from bench.config.fields import BUILT_IN, DIGITS_SAMPLES, ON_DISK, Fields, Role, fields_with

_STEEP = 0.8  # learning rate without warm-up, above which the loss of ResNet-50 was seen to explode


def steep_rate(c: Fields) -> str | None:
    """Return a warning if the learning rate will probably make the loss explode, else None."""
    rate = c.peak_learning_rate
    if rate <= _STEEP or c.lr_warmup_steps or c.emulate is not None:
        return None
    explodes = "will probably make the loss explode, which fails the run"
    cure = f"above {_STEEP:g} use --lr-warmup-steps, --max-lr or a lower --base-lr"
    return f"learning rate {rate:g} from the first step {explodes}; {cure}"


def require_text(name: str, value: str) -> None:
    """Raise ValueError for empty text, control characters and bytes that are not UTF-8."""
    if not value:
        raise ValueError(f"{name}='' is empty; leave it out, or give a value")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        fault = "a control character, or bytes that are no UTF-8"
        raise ValueError(f"{name}={value!r} holds {fault}; use another name")


def _changed(c: Fields, names: Iterable[str]) -> list[str]:
    """List the fields of `names` that are not at their default, as 'name=value'."""
    usual = Fields.model_fields
    return [f"{n}={getattr(c, n)}" for n in names if getattr(c, n) != usual[n].default]


def check(c: Fields) -> None:
    """Raise ValueError, in one line, for the first broken rule; a rule assumes all before it."""
    rules = (_world, _batch, _data, _device, _exchange, _knobs, _modes)
    if broken := next(chain.from_iterable(rule(c) for rule in rules), None):
        raise ValueError(broken)


def _world(c: Fields) -> Iterator[str]:
    if c.backend not in CATALOGUE:
        cure = f"or bring {USERS}{c.backend} on Python's path"
        yield f"backend={c.backend!r} is none of {', '.join(CATALOGUE)}; {cure}"
    transports = CATALOGUE[c.backend].transports
    use = f"use --transport {' or '.join(transports)}"
    if not transports and (c.world_size != 1 or c.transport != "none"):
        setting = f"world_size={c.world_size} transport={c.transport}"
        cure = f"use --backend {' or '.join(frameworks())}"
        yield f"backend={c.backend} is one process without transport, not {setting}; {cure}"
    if transports and c.transport == "none":
        yield f"backend={c.backend} needs a transport; {use}"
    if transports and c.transport not in transports:
        yield f"backend={c.backend} has no transport={c.transport}; {use}"


def undivided(global_batch: int, world_size: int) -> str:
    """Return the error message for a batch that ranks cannot share equally, with sizes to use."""
    below = global_batch // world_size * world_size
    use = f"{below} or {below + world_size}" if below else world_size
    return f"global_batch={global_batch} does not divide by world_size={world_size}; use {use}"


def _batch(c: Fields) -> Iterator[str]:
    if (c.global_batch is None) == (c.batch_per_rank is None):
        yield "give exactly one of global_batch (strong scaling) and batch_per_rank (weak scaling)"
    if c.global_batch is not None and c.global_batch % c.world_size:
        yield undivided(c.global_batch, c.world_size)
    if c.samples_per_rank % c.accumulate:
        images = f"the {c.samples_per_rank} images of a rank's step"
        reason = "unequal micro-batches would weigh images unequally"
        yield f"accumulate={c.accumulate} does not divide {images}: {reason}; choose a divisor"


def _data(c: Fields) -> Iterator[str]:
    is_factory = ":" in c.dataset
    if not is_factory and c.dataset not in (*BUILT_IN, *ON_DISK):
        names = ", ".join((*BUILT_IN, *ON_DISK))
        yield f"dataset={c.dataset!r} is none of {names}; or give package.module:factory"
    if c.data_dir is not None and c.dataset in BUILT_IN:
        data_dir = f"data_dir={str(c.data_dir)!r}"
        yield f"dataset={c.dataset} is built in and reads no {data_dir}; leave it out"
    if c.data_dir is None and c.dataset in ON_DISK:
        yield f"dataset={c.dataset} lives on disk; use --data-dir FOLDER"
    if c.dataset == "digits" and c.image_size % 8:
        low = c.image_size // 8 * 8
        size = f"image_size={c.image_size}"
        yield f"{size}: digits are 8 x 8 pixels, enlarged whole; use {low} or {low + 8}"
    if c.dataset == "digits" and c.samples_per_step > DIGITS_SAMPLES:
        takes = f"a step takes {c.samples_per_step} samples"
        yield f"{takes}, but digits has {DIGITS_SAMPLES}; use a smaller batch"
    if c.dataset == "synthetic" and c.sharding == "fixed":
        yield "sharding=fixed divides a data set, and synthetic images are endless; leave it out"


def _device(c: Fields) -> Iterator[str]:
    if c.inject_ms and c.device == "cuda":
        setting = f"inject_ms={c.inject_ms} has no place with device=cuda"
        yield f"{setting}, which computes on while the host sleeps; leave it out"
    if c.device == "cuda":
        if (transports := CATALOGUE[c.backend].transports) and "nccl" not in transports:
            capable = [name for name in frameworks() if "nccl" in CATALOGUE[name].transports]
            setting = f"backend={c.backend} exchanges CPU tensors"
            yield f"{setting}; with device=cuda use --backend {' or '.join(capable)}"
        if c.transport in ("mpi", "gloo"):
            carries = f"transport={c.transport} carries CPU tensors"
            yield f"{carries}; with device=cuda use --transport nccl"
        return
    if c.transport == "nccl":
        yield "transport=nccl carries CUDA tensors; with device=cpu use --transport mpi or gloo"
    if c.precision == "tf32":
        yield "precision=tf32 is CUDA's; with device=cpu use float32 or bf16-mixed"


def _exchange(c: Fields) -> Iterator[str]:
    facts = CATALOGUE[c.backend]
    # settings say how a framework is started, whether or not it exchanges anything
    about = [name for name in fields_with(Role.EXCHANGE) if name != "settings"]
    for setting in _changed(c, () if facts.transports else about):
        yield f"{setting} is about the exchange, backend={c.backend} has none; leave it out"
    about.remove("exchange")
    for setting in _changed(c, about if c.exchange == "off" else ()):
        yield f"{setting} is about the exchange, which exchange=off leaves out; leave one out"
    if c.overlap == "off" and c.bucket_mib is not None and not facts.cuts_freely:
        yield f"bucket_mib={c.bucket_mib:g} has no effect with overlap=off; leave one out"
    if c.bucket_mib == 0 and not facts.cuts_freely:
        rule = f"bucket_mib=0 is one exchange a parameter, and backend={c.backend} has none of that"
        yield f"{rule}; give it more"
    for (name, value), reason in facts.refused.items():
        if name not in type(c).model_fields:  # of an earlier version, so nobody can ask for it
            continue
        if getattr(c, name) == value or (value is ... and _changed(c, [name])):
            yield f"{name}={getattr(c, name)}: {reason}"


def _knobs(c: Fields) -> Iterator[str]:
    """Yield errors: a framework's own option has no effect, or settings=tuned comes without one."""
    knobs_set = _changed(c, fields_with(Role.KNOB))
    taken = CATALOGUE[c.backend].knobs
    combination = f"backend={c.backend} settings={c.settings}"
    for knob in (setting.partition("=")[0] for setting in knobs_set):
        if knob not in taken.get(c.settings, ()):
            cure = "leave it out, or change --settings"
            yield f"{knob} has no effect with {combination}, but with {takers(knob)}; {cure}"
    if not knobs_set and c.settings == "tuned":
        knobs = ", ".join(taken.get("tuned", ())) or "it has none"
        yield f"settings=tuned sets a knob of backend={c.backend} ({knobs}); none is given"


def _modes(c: Fields) -> Iterator[str]:
    """Yield error messages for fields that do not go with `mode`, `epochs` or `emulate`."""
    refused = (
        (
            c.mode == "async",  # has neither all ranks' gradients nor one state of the optimiser
            ("clip_norm", "unused_parameters", "emulate"),
            " has no place with mode=async, where each gradient is applied as it comes; leave one "
            "out",
        ),
        (c.epochs is None, ("target", "trainings"), " is of trainings; use --epochs as well"),
        (
            c.epochs is not None,
            ("emulate", "exchange", "preprocessing", "inject_ms", "observe"),
            " has no place in a training to its end; leave it or epochs out",
        ),
        (
            c.emulate is not None,
            (
                *("dataset", "data_dir", "preprocessing", "num_workers", "device"),
                *("accumulate", "unused_parameters"),
            ),
            ": with emulate compute sleeps, without input, in one pass, on the CPU; leave one of "
            "them out",
        ),
    )
    for holds, names, why in refused:
        for setting in _changed(c, names if holds else ()):
            yield f"{setting}{why}"
    if c.epochs is not None and c.dataset == "synthetic":
        reason = "synthetic images are endless and hold nothing to learn"
        yield f"epochs={c.epochs}: {reason}; use --dataset digits, or another"
