"""The fields that define one run, each with its unit, and what follows from them by arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Backend = Literal["single", "ddp", "horovod"]
Transport = Literal["none", "mpi", "gloo", "nccl"]
Settings = Literal["shipped", "matched", "tuned"]
Curve = Literal["weak", "strong", "batch"]
Precision = Literal["float32", "tf32", "float64", "bf16-mixed", "bf16"]


MATCHED_BUCKET_MIB = 25.0
_MOST = (
    10**9
)  # of anything that is counted: more is a slip, and some arithmetic on it would end in a traceback


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(filter(None, value.split(",")))
    return tuple(value) if isinstance(value, list) else value


class Fields(BaseModel):
    """Every option of a run; which of them go together is in bench/config/rules.py."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # in --help, each group begins with this field and ends before the next
    groups: ClassVar[dict[str, str]] = {
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

    backend: Backend = Field(
        "single", description="who averages the gradients: nobody (one process), DDP or Horovod"
    )
    transport: Transport = Field(
        "none",
        description="wire the gradients travel on; 'none' for single, else mpi (the CPU's "
        "default), gloo, or nccl (CUDA)",
    )
    settings: Settings = Field(
        "shipped",
        description="'shipped': each framework's own defaults; 'matched': equal bucket bytes, no "
        "buffer broadcast in a step; "
        "'tuned': a knob of the framework set by hand",
    )
    model: str = Field(
        "resnet50",
        description="a torchvision classification model, or package.module:factory(num_classes) "
        "for your own",
    )
    dataset: str = Field(
        "synthetic",
        description="'synthetic': fresh random images per step; 'digits': scikit-learn's "
        "handwritten digits; 'svhn', 'cifar10', "
        "'cifar100', 'imagefolder' (a folder per class, as ImageNet's train/): from data_dir; "
        "package.module:factory(config) "
        "for your own",
    )
    data_dir: Path | None = Field(
        None,
        description="folder of a data set that lives on disk; refused by the two built-in data "
        "sets, which need none",
    )
    download: bool = Field(
        True, description="fetch svhn, cifar10 or cifar100 into data_dir where it is missing"
    )
    augment: bool = Field(
        True,
        description="the data set's standard augmentation, seeded; built-in data sets have none",
    )
    sharding: Literal["reshuffled", "fixed"] = Field(
        "reshuffled",
        description="which samples a rank sees: 'reshuffled' over all ranks every epoch, or one "
        "'fixed' part of its own, in a "
        "new order every epoch",
    )
    preprocessing: Literal["inside", "outside"] = Field(
        "inside",
        description="'inside' the clock, or 'outside': every batch of the run is made and kept in "
        "memory beforehand",
    )
    loader_only: bool = Field(
        False, description="measure the input pipeline alone: batches are made, nothing is trained"
    )
    image_size: int = Field(
        32, ge=8, le=2**16, description="edge of the square input image, pixels"
    )
    global_batch: int | None = Field(
        None, ge=1, le=_MOST, description="images per step over all ranks (strong scaling)"
    )
    batch_per_rank: int | None = Field(
        None, ge=1, le=_MOST, description="images per step on each rank (weak scaling)"
    )
    world_size: int = Field(
        1, ge=1, le=_MOST, description="ranks this run must have; any other number is an error"
    )
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="where the model lives; 'cuda' is ROCm's name in torch as well"
    )
    precision: Precision = Field(
        "float32",
        description="float32 (TF32 off), tf32 (CUDA), float64; bf16-mixed: autocast, weights and "
        "gradients in float32; bf16: "
        "weights, activations and gradients",
    )
    memory_format: Literal["contiguous", "channels_last"] = Field(
        "contiguous", description="layout of weights and activations"
    )
    compile: bool = Field(
        False, description="torch.compile the model (takes away Horovod's overlap: compare apart)"
    )
    accumulate: int = Field(
        1,
        ge=1,
        le=_MOST,
        description="micro-batches of a step; each has batch_per_rank / accumulate images",
    )
    clip_norm: float | None = Field(
        None, gt=0, description="clip the gradients to this global L2 norm after the exchange"
    )
    compression: Literal["none", "fp16", "bf16"] = Field(
        "none", description="type in which float32 gradients travel"
    )
    sync_batchnorm: bool = Field(
        False,
        description="BatchNorm statistics over all ranks (CUDA, where both frameworks have it)",
    )
    unused_parameters: bool = Field(
        False,
        description="the model leaves parameters out of some steps; without this such a model is "
        "refused",
    )
    base_lr: float = Field(
        0.1,
        gt=0,
        description="learning rate per 256 images; the one rule: lr = base_lr * global batch / 256",
    )
    max_lr: float | None = Field(
        None,
        gt=0,
        description="the learning rate never rises above this; for studies of throughput, whose "
        "largest batches diverge",
    )
    lr_warmup_steps: int = Field(
        0,
        ge=0,
        le=_MOST,
        description="steps over which the learning rate rises linearly to that value",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD momentum")
    weight_decay: float = Field(1e-4, ge=0, description="SGD weight decay (L2)")
    nesterov: bool = Field(False, description="Nesterov momentum")
    warmup_steps: int = Field(
        10, ge=3, le=_MOST, description="steps before the first window, recorded but not counted"
    )
    windows: int = Field(4, ge=1, le=_MOST, description="timed windows")
    steps_per_window: int = Field(5, ge=1, le=_MOST, description="optimiser updates in a window")
    seed: int = Field(
        0, ge=0, lt=2**62, description="seed of the initial weights, the data and its order"
    )
    threads: int = Field(1, ge=1, le=4096, description="compute threads of each rank")
    num_workers: int = Field(
        0,
        ge=0,
        le=4096,
        description="data-loading processes of each rank; 0 loads in the training process",
    )
    bucket_mib: float | None = Field(
        None,
        gt=0,
        le=2**20,
        description="MiB per gradient exchange: DDP's bucket cap; with settings=matched, of both "
        "frameworks",
    )
    fusion_mib: float | None = Field(
        None, ge=0, le=2**20, description="Horovod's fusion threshold, MiB (its default: 128)"
    )
    cycle_ms: float | None = Field(
        None, gt=0, le=10_000, description="Horovod's cycle time, ms (its default: 1)"
    )
    log_path: Path | None = Field(
        None, description="run log to create (JSON lines); without it nothing is kept"
    )
    rendezvous_dir: Path | None = Field(
        None,
        description="folder all ranks see, where they find each other; default: the log's folder, "
        "or /tmp on one node",
    )
    rendezvous_timeout_s: float = Field(
        60.0, ge=0.1, le=86_400, description="seconds to wait for the other ranks"
    )
    stall_timeout_s: float = Field(
        600.0,
        ge=1,
        le=86_400,
        description="seconds without a finished step, or phase of the start, after which the run "
        "is ended as failed",
    )
    study: str | None = Field(None, description="name of the study this run belongs to")
    block: int | None = Field(
        None, ge=0, le=_MOST, description="index of the block this run belongs to"
    )
    position: int | None = Field(
        None, ge=0, le=_MOST, description="place of this run in its block's random order"
    )
    curves: Annotated[tuple[Curve, ...], BeforeValidator(_split_commas)] = Field(
        (),
        description="curves of the study that this run is a point of, comma-separated: weak, "
        "strong, batch",
    )

    @property
    def samples_per_step(self) -> int:
        """Images per step over all ranks."""
        return (
            self.global_batch
            if self.global_batch is not None
            else self.samples_per_rank * self.world_size
        )

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
        """Optimiser updates of the whole run, warm-up included."""
        return self.warmup_steps + self.windows * self.steps_per_window

    @property
    def cell(self) -> str:
        """What is compared: framework/transport, or 'single'."""
        return self.backend if self.backend == "single" else f"{self.backend}/{self.transport}"

    @property
    def peak_learning_rate(self) -> float:
        """Learning rate after its warm-up: linear scaling (Goyal et al. 2017), but not above
        `max_lr`.
        """
        scaled = self.base_lr * self.samples_per_step / 256
        return scaled if self.max_lr is None else min(scaled, self.max_lr)

    def learning_rate(self, step: int) -> float:
        """Learning rate of `step` (0-based, warm-up included): it rises linearly to the peak (Goyal
        et al. 2017).
        """
        rise = min(1.0, (step + 1) / self.lr_warmup_steps) if self.lr_warmup_steps else 1.0
        return self.peak_learning_rate * rise
