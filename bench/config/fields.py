"""The fields that define one run, each with its role and unit, and the data sets by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from bench.backends.catalogue import CATALOGUE, Cell, takers
from bench.options import Options, Shown, split_commas

Transport = Literal["none", "mpi", "gloo", "nccl"]
Settings = Literal["shipped", "matched", "tuned"]
Curve = Literal["weak", "strong", "batch"]
# logs of version 1.0.0 have `framework` too: what it said of itself, which no report shows
Observed = Literal["nothing", "breakdown", "framework"]
Precision = Literal["float32", "tf32", "float64", "bf16-mixed", "bf16"]

MOMENTUM = 0.9  # of SGD, in every run
MATCHED_BUCKET_MIB = 25.0
EVERYTHING_MIB = 2.0**20  # of one exchange that holds all gradients of any model
NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"  # part of the names of files and jobs
NETWORKS = ("inception_bn", "inception_bn_28", "mlp", "resnet23", "resnet9")  # the project's own
NAME_RULE = "use lower-case letters, digits, '-' and '_', at most 64"
Channels = tuple[float, float, float]  # red, green, blue

DIGITS_SAMPLES = 1797
BUILT_IN = ("synthetic", "digits", "generated")  # need no folder
PADDING = 4  # pixels before the random crop of a 32 x 32 image (He et al. 2016, section 4.2)
_CROP = f"random crop after {PADDING} pixels of padding"


@dataclass(frozen=True, kw_only=True)
class OnDisk:
    """A data set on disk; `mean` and `std` are per channel, of training images scaled to [0, 1]."""

    mean: Channels
    std: Channels
    flips: bool = True  # whether a mirrored image is of the same class
    classes: int = 0  # 0: as many as there are folders
    holds: str = ""  # what data_dir holds of it, as published; "": what the user put in
    augmentation: str = f"{_CROP}, horizontal flip"


# the values in common use; ImageNet's, for any folder of images, are torchvision's training's
ON_DISK = {
    "svhn": OnDisk(
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        flips=False,  # a mirrored digit is another digit, or none
        classes=10,
        holds="train_32x32.mat",
        augmentation=_CROP,
    ),
    "cifar10": OnDisk(
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        classes=10,
        holds="cifar-10-batches-py",
    ),
    "cifar100": OnDisk(
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        classes=100,
        holds="cifar-100-python",
    ),
    "imagefolder": OnDisk(
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        augmentation="random resized crop, horizontal flip",
    ),
}
PUBLISHED = tuple(name for name, row in ON_DISK.items() if row.holds)


class Role(Flag):
    """A field's role in a study: exactly one of the first five flags, and any of the others."""

    CELL = auto()  # names what is compared
    POINT = auto()  # a size at which it is compared
    WORK = auto()  # what is computed: equal in all runs, or varied by the study
    METHOD = auto()  # how it is measured, or where its data lie: makes no other work
    BOOKKEEPING = auto()  # no effect on what is measured

    KNOB = auto()  # of a framework: cannot agree between two
    EXCHANGE = auto()  # about the exchange: means nothing to one process alone
    DISCLOSED = auto()  # a report names it wherever it is not the default
    PLANNED = auto()  # set by the plan, never by a study's [run]
    PER_LAUNCH = auto()  # equal inside a launch, may differ between launches
    FOLDER = auto()  # may have another name on each node


_CELL, _KNOB = Role.CELL | Role.PLANNED, Role.CELL | Role.KNOB
_SIZE = Role.POINT | Role.PLANNED
_WORK, _METHOD, _BOOK = Role.WORK, Role.METHOD, Role.BOOKKEEPING
_LAUNCH = Role.METHOD | Role.PER_LAUNCH
_SEED = _LAUNCH | Role.PLANNED
_DISCLOSED = Role.WORK | Role.DISCLOSED
_EXCHANGE = _DISCLOSED | Role.EXCHANGE
_PLAN = Role.BOOKKEEPING | Role.PLANNED


def _field(role: Role, default: Any, description: str, **limits: Any) -> Any:
    """Make a pydantic field that carries its role in a study; `limits` go to pydantic's `Field`."""
    info: FieldInfo = Field(default, description=description, **limits)
    info.metadata.append(role)
    return info


def _count(role: Role, default: int | None, description: str, least: int = 1) -> Any:
    # more is a slip, and some arithmetic on it would end in a traceback
    return _field(role, default, description, ge=least, le=10**9)


class Fields(Options):
    """Every option of a run; bench/config/rules.py says which of them go together."""

    switches_back: ClassVar[bool] = True
    groups: ClassVar[Mapping[str, str]] = {
        "backend": "what is compared",
        "model": "workload",
        "device": "device and numbers",
        "base_lr": "training",
        "warmup_steps": "measuring",
        "threads": "resources",
        "bucket_mib": "knobs of a framework, with settings=tuned",
        "log_path": "bookkeeping",
        "study": "set by python -m slurm for the runs of a study",
    }

    backend: Annotated[str, Shown(metavar=f"{{{','.join(CATALOGUE)}}}")] = _field(
        _CELL, "single", f"what averages the gradients: {', '.join(CATALOGUE)}"
    )
    transport: Transport = _field(
        _CELL, "none", "wire the gradients travel on; a framework's, left out: mpi, on CUDA nccl"
    )
    settings: Settings = _field(
        _EXCHANGE,
        "shipped",
        "'shipped': each framework's own defaults; 'matched': equal bucket bytes, no buffer "
        "broadcast in a step; 'tuned': a knob of the framework set by hand",
    )
    arm: str | None = _field(_CELL, None, "name of the condition it is measured in", pattern=NAME)
    model: str = _field(
        _WORK,
        "resnet50",
        f"{', '.join(['of torchvision', *NETWORKS])}; or package.module:factory(num_classes)",
    )
    model_width: float = _field(
        *(_WORK, 1.0, f"share of the channels of {', '.join(NETWORKS)}, or of your factory"),
        gt=0,
        le=16,
    )
    dataset: str = _field(
        _WORK,
        "synthetic",
        "'synthetic': fresh random images per step; 'digits': scikit-learn's handwritten digits; "
        "'generated': points around 32 centres, as grey images; "
        f"{', '.join(PUBLISHED)}, 'imagefolder' (a folder per class, as ImageNet's train/): "
        "from data_dir; package.module:factory(config) for your own",
    )
    data_dir: Path | None = _field(
        *(_LAUNCH | Role.FOLDER, None),
        f"folder of a data set on disk; {', '.join(PUBLISHED)} as they were published",
    )
    sharding: Literal["reshuffled", "fixed"] = _field(
        *(_WORK, "reshuffled"),
        "which samples a rank sees: 'reshuffled' over all ranks every epoch, or one 'fixed' part "
        "of its own, in a new order every epoch",
    )
    preprocessing: Literal["inside", "outside", "resident"] = _field(
        *(_DISCLOSED, "inside"),
        "'inside' the clock; 'outside': all made beforehand; 'resident': one, kept on the device",
    )
    emulate: Path | None = _field(
        _DISCLOSED,
        None,
        "timeline (python -m bench timeline): compute sleeps as recorded there, in proportion to "
        "the images; gradients, exchange and optimiser are real",
    )
    image_size: int = _field(_WORK, 32, "edge of the square input image, pixels", ge=8, le=2**16)
    global_batch: int | None = _count(_SIZE, None, "images per step, all ranks (strong scaling)")
    batch_per_rank: int | None = _count(_SIZE, None, "images per step, each rank (weak scaling)")
    world_size: int = _count(_SIZE, 1, "ranks that train; any other number is an error")
    device: Literal["cpu", "cuda"] = _field(_DISCLOSED, "cpu", "'cuda' is ROCm's name in torch too")
    precision: Precision = _field(
        _WORK,
        "float32",
        "float32 (TF32 off), tf32 (CUDA), float64; bf16-mixed: autocast, weights and gradients "
        "in float32; bf16: weights, activations and gradients",
    )
    memory_format: Literal["contiguous", "channels_last"] = _field(
        _DISCLOSED, "contiguous", "layout of weights and activations"
    )
    accumulate: int = _count(_DISCLOSED, 1, "micro-batches of a step, which share its images")
    clip_norm: float | None = _field(_DISCLOSED, None, "global L2 norm to clip gradients to", gt=0)
    exchange: Literal["on", "off"] = _field(_EXCHANGE, "on", "'off': no gradient is exchanged")
    overlap: Literal["on", "off"] = _field(_EXCHANGE, "on", "'off': one exchange, after backward")
    unused_parameters: bool = _field(_WORK, False, "allow steps that leave parameters out")
    base_lr: float = _field(_WORK, 0.1, "learning rate: base_lr * global batch / 256", gt=0)
    max_lr: float | None = _field(_WORK, None, "bound of the learning rate", gt=0)
    lr_warmup_steps: int = _count(_WORK, 0, "steps of a linear rise to the learning rate", least=0)
    lr_decay: Literal["none", "linear"] = _field(
        _WORK, "none", "after the rise: 'linear' falls to zero at the end of the training"
    )
    weight_decay: float = _field(_WORK, 1e-4, "SGD weight decay (L2)", ge=0)
    nesterov: bool = _field(_WORK, False, "Nesterov's form of the momentum, which is 0.9")
    label_smoothing: float = _field(
        _DISCLOSED, 0.0, "share of each label that is spread over all classes", ge=0, lt=1
    )
    epochs: int | None = _count(
        _WORK, None, "after the windows, train from new weights for this many epochs at most"
    )
    target: float | None = _field(_WORK, None, "held-out accuracy that ends it", gt=0, le=1)
    trainings: int = _count(_METHOD, 1, "how many of them, each from a seed of its own")
    warmup_steps: int = _count(_METHOD, 10, "steps before the first window, not counted", least=3)
    windows: int = _count(_METHOD, 4, "timed windows")
    lead_in_steps: int = _count(_METHOD, 0, "steps before each window, not counted", least=0)
    steps_per_window: int = _count(_METHOD, 5, "optimiser updates in a window")
    inject_ms: float = _field(
        _DISCLOSED, 0.0, "sleep of every rank in a step, ms: a known slowdown", ge=0, le=10_000
    )
    observe: Annotated[Observed, Shown(metavar="{nothing,breakdown}")] = _field(
        _METHOD,
        "nothing",
        "'breakdown': log the parts of every step; such a run's speed is not counted",
    )
    seed: int = _field(_SEED, 0, "of initial weights, data and their order", ge=0, lt=2**62)
    threads: int = _field(_WORK, 1, "compute threads of each rank", ge=1, le=4096)
    num_workers: int = _count(_WORK, 0, "data-loading processes of each rank, or none", least=0)
    bucket_mib: float | None = _field(
        _KNOB, None, f"MiB per gradient exchange, of {takers('bucket_mib')}", ge=0, le=2**20
    )
    mode: Literal["sync", "async"] = _field(
        _KNOB,
        "sync",
        "'sync': a step by the mean of all gradients; 'async': each is applied as it comes, of "
        f"{takers('mode')}",
    )
    log_path: Path | None = _field(
        _PLAN | Role.FOLDER,
        None,
        "run log to create (JSON lines), else nothing is kept; ranks on several nodes meet there",
    )
    peak_tflops: float | None = _field(
        _BOOK, None, "peak of a rank's device, 1e12 operations/s, to tell its use", ge=1e-6, le=1e6
    )
    stall_timeout_s: float = _field(
        *(_BOOK, 600.0),
        "seconds without progress that fail a run; of its start a tenth, and a minute at least",
        ge=1,
        le=86_400,
    )
    study: str | None = _field(_PLAN, None, "name of the study this run belongs to")
    study_sha256: str | None = _field(
        _PLAN, None, "SHA-256 of that study as it was planned", pattern="^[0-9a-f]{64}$"
    )
    launch: int | None = _count(_PLAN, None, "index of the launch this run belongs to", least=0)
    position: int | None = _count(_PLAN, None, "place in its launch's random order", least=0)
    curves: Annotated[tuple[Curve, ...], BeforeValidator(split_commas)] = _field(
        _PLAN, (), "curves that this run is a point of, comma-separated: weak, strong, batch"
    )

    @property
    def samples_per_step(self) -> int:
        """Images per step over all ranks."""
        return self.global_batch or self.samples_per_rank * self.world_size

    @property
    def samples_per_rank(self) -> int:
        """Images per step on each rank."""
        if self.batch_per_rank is not None:
            return self.batch_per_rank
        assert self.global_batch is not None
        return self.global_batch // self.world_size

    @property
    def samples_per_microbatch(self) -> int:
        """Images of one forward pass on each rank."""
        return self.samples_per_rank // self.accumulate

    @property
    def steps(self) -> int:
        """Optimiser updates until the windows end; `epochs` trains anew after that, uncounted."""
        return self.warmup_steps + self.windows * (self.lead_in_steps + self.steps_per_window)

    @property
    def bucket_cap_mib(self) -> float | None:
        """MiB at which no more gradients join an exchange; None leaves it to the framework."""
        if self.bucket_mib is not None:
            return self.bucket_mib
        if self.overlap == "off":
            return EVERYTHING_MIB
        return MATCHED_BUCKET_MIB if self.settings == "matched" else None

    @property
    def ranks_part(self) -> bool:
        """Whether several ranks exchange no gradients and so must end with unequal parameters."""
        return self.exchange == "off" and self.world_size > 1

    @property
    def averages(self) -> bool:
        """Whether `mode` is 'sync', in which each step takes the mean of all ranks' gradients."""
        return self.mode == "sync"

    @property
    def cell(self) -> str:
        """Name of what is compared: 'backend/transport', such as 'ddp/mpi', or 'single'."""
        return Cell(self.backend, "" if self.transport == "none" else self.transport).name

    @property
    def peak_learning_rate(self) -> float:
        """Peak learning rate: base_lr * global batch / 256 (Goyal et al. 2017), up to `max_lr`."""
        scaled = self.base_lr * self.samples_per_step / 256
        return scaled if self.max_lr is None else min(scaled, self.max_lr)

    def learning_rate(self, step: int, steps: int | None = None) -> float:
        """Return the learning rate at `step` (from 0) of `steps`, by default the run's steps.

        The rate rises linearly (Goyal et al. 2017), and then stays or falls linearly to 0.
        """
        rise, steps = self.lr_warmup_steps, steps or self.steps
        if step < rise:
            return self.peak_learning_rate * (step + 1) / rise
        if self.lr_decay == "none":
            return self.peak_learning_rate
        return self.peak_learning_rate * (steps - step) / (steps - rise)

    def reaches(self, correct: int, samples: int) -> bool:
        """Check if `correct` of `samples` reach the target accuracy; False without a target."""
        return self.target is not None and correct / samples >= self.target


@cache
def fields_with(role: Role) -> tuple[str, ...]:
    """Return the names of the fields that have all flags of `role`, in order of definition."""
    return tuple(
        name
        for name, info in Fields.model_fields.items()
        if any(role in entry for entry in info.metadata if isinstance(entry, Role))
    )
