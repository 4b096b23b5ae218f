"""What follows from a run's fields by arithmetic: batches, steps, processes, learning rates."""

from __future__ import annotations

from bench.backends.catalogue import Cell
from bench.config.fields import Fields, Role, fields_with

MOMENTUM = 0.9  # of SGD, in every run
MATCHED_BUCKET_MIB = 25.0
EVERYTHING_MIB = 2.0**20  # of one exchange that holds all gradients of any model


class Derived(Fields):
    """The fields, and all that they fix."""

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
        """Optimiser updates of the whole run, warm-up included."""
        return self.warmup_steps + self.windows * (self.lead_in_steps + self.steps_per_window)

    @property
    def bucket_cap_mib(self) -> float | None:
        """MiB at which an exchange of gradients is full; None where a framework decides."""
        if self.bucket_mib is not None:
            return self.bucket_mib
        if self.overlap == "off":
            return EVERYTHING_MIB
        return MATCHED_BUCKET_MIB if self.settings == "matched" else None

    @property
    def ranks_part(self) -> bool:
        """Whether every rank trains on its own, and so must end with other parameters."""
        return self.exchange == "off" and self.world_size > 1

    @property
    def averages(self) -> bool:
        """Whether every step takes the mean of all ranks' gradients, or each rank its own."""
        return self.mode == "sync"

    @property
    def is_throughput(self) -> bool:
        """Whether the windows time training as it is: it is not left out, and not observed."""
        usual = type(self).model_fields
        return all(getattr(self, n) == usual[n].default for n in fields_with(Role.APART))

    @property
    def cell(self) -> str:
        """What is compared: framework/transport or 'single'."""
        return Cell(self.backend, "" if self.transport == "none" else self.transport).name

    @property
    def peak_learning_rate(self) -> float:
        """Linear scaling (Goyal et al. 2017), but not above `max_lr`; reached after warm-up."""
        scaled = self.base_lr * self.samples_per_step / 256
        return scaled if self.max_lr is None else min(scaled, self.max_lr)

    def learning_rate(self, step: int, steps: int | None = None) -> float:
        """Give the learning rate at `step` (0-based, with warm-up) of `steps`; default: the run's.

        It rises linearly (Goyal et al. 2017), and then stays or falls linearly.
        """
        rise, steps = self.lr_warmup_steps, steps or self.steps
        if step < rise:
            return self.peak_learning_rate * (step + 1) / rise
        if self.lr_decay == "none":
            return self.peak_learning_rate
        return self.peak_learning_rate * (steps - step) / (steps - rise)

    def reaches(self, correct: int, samples: int) -> bool:
        """Check whether a training with so many of the held-out samples right is done."""
        return self.target is not None and correct / samples >= self.target
