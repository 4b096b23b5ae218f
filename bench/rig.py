"""A rig: all that one rank trains with, always assembled and closed in the same order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bench import backends, data, models
from bench.backends.protocol import Backend
from bench.config import RunConfig, UsageError
from bench.data import Images
from bench.instrument import Observer, Observers, Sleep
from bench.instrument.parity import SAMPLED, STEP, Parity
from bench.launch import provenance
from bench.launch.provenance import digests, disagreement, flat
from bench.launch.world import Launch, WrongWorld
from bench.lifecycle.ending import Pulse
from bench.lifecycle.turns import ALONE, Turns
from bench.progress import say
from bench.record import SCHEMA, RunLog
from bench.train import device
from bench.train.checks import TorchSettings, require_alike
from bench.train.device import Device
from bench.train.loop import Input, Loop

if TYPE_CHECKING:
    from bench.instrument.emulation import Emulation


def write_start(
    config: RunConfig,
    launch: Launch,
    log: RunLog,
    backend: Backend,
    place: Device,
    workload: dict[str, Any],
    turns: Turns = ALONE,
) -> dict[str, bytes]:
    """Check that ranks agree, and log the start; return the user's source files by path.

    All ranks must call this. Raises UsageError if ranks differ or share a GPU, or if a source file
    is missing or cannot be copied. Raises WrongWorld if a rank exists twice or not at all.
    """
    files = provenance.user_files(config)
    user_code, shared = digests(files), provenance.shared(os.environ, backend.versions)
    rank_facts = provenance.describe_rank(launch, torch.get_num_threads())
    rank_facts |= place.describe()
    rank_facts |= {**backend.files, **disturbance(turns)}
    model = {"gpu": rank_facts["gpu"]} if "gpu" in rank_facts else {}
    alike = flat({**shared, "user_code": user_code, **model, "workload": workload})
    of_ranks = backend.gather((alike, rank_facts, provenance.placement(os.environ)))
    if problem := disagreement([of_all for of_all, _, _ in of_ranks]):
        raise UsageError(problem)
    first = of_ranks[0][2]
    ranks = [{**one, "env": provenance.changed(first, env)} for _, one, env in of_ranks]
    places = {(r["hostname"], r["local_rank"]) for r in ranks}
    if len(places) != launch.size or [r["rank"] for r in ranks] != list(range(launch.size)):
        held = f"{launch.size} ranks hold {len(places)} distinct places (host, local rank)"
        cure = "see python -m bench doctor under the same launcher"
        raise WrongWorld(f"{held}: a doubled or lost rank; {cure}")
    device.require_own_gpus(ranks)
    if launch.rank == 0:
        facts: dict[str, Any] = {"ranks": ranks}
        facts |= provenance.describe_run(os.environ, shared)
        facts |= {"user_code": user_code} if user_code else {}
        facts |= {"turns": turns.place.record()} if turns.place else {}
        start = {"config": config.model_dump(mode="json"), "host": facts, "workload": workload}
        log.write("start", schema=SCHEMA, **start)
        provenance.keep_files(files, config.log_path)
    return files


def disturbance(turns: Turns) -> dict[str, Any]:
    """Return the ticks of `provenance.counters` by name, less those outside this run's turns."""
    noted, outside = provenance.counters(), turns.aside()
    return {name: n if n is None else n - outside.get(name, 0) for name, n in noted.items()}


@dataclass(frozen=True)
class Workload:
    """What is trained: data, and a model on this rank's device or a stand-in for it that sleeps.

    `held_out` is None if `epochs` is not set; `emulation` is None if nothing is emulated.
    """

    images: Images
    held_out: Images | None
    network: torch.nn.Module
    emulation: Emulation | None

    def facts(self, config: RunConfig) -> dict[str, Any]:
        """Return facts of the workload by name, for the log's start."""
        trained = [p for p in self.network.parameters() if p.requires_grad]
        return {
            **data.describe(config, self.images),
            "parameters": sum(p.numel() for p in trained),
            "gradient_bytes": sum(p.numel() * p.element_size() for p in trained),
            **({} if self.emulation is None else self.emulation.facts),
            **({} if self.held_out is None else {"held_out": self.held_out.samples}),
        }


@dataclass(kw_only=True)
class Rig:
    """What one rank trains with; `parity` is None where no gradients are compared."""

    config: RunConfig
    launch: Launch
    place: Device
    workload: Workload
    backend: Backend
    samples: Input
    user_files: dict[str, bytes]  # by path: code of the user's that was loaded before the start
    settings: TorchSettings
    parity: Parity | None
    observer: Observer
    loop: Loop

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the framework's process group; every rank must call this last.

        After an error nothing is closed: ranks would wait for ranks that never come.
        """
        if kind is None:
            # they hold the wrapped model, which must be gone before its process group
            del self.loop, self.parity, self.observer, self.workload
            self.backend.close()


def assemble(
    config: RunConfig,
    launch: Launch,
    log: RunLog,
    pulse: Pulse,
    turns: Turns = ALONE,
    *,
    parity_steps: Sequence[int] = (STEP,),
    parity_elements: int = SAMPLED,
    weights_apart: bool = False,
) -> Rig:
    """Assemble what one rank trains with, for a `with` block; log the start. All ranks call this.

    In `parity_steps`, at most `parity_elements` values of each gradient are checked. With
    `weights_apart` ranks draw different weights, to test that all get rank 0's. Raises UsageError.
    """
    place, workload = _load(config, launch, pulse, weights_apart)
    pulse.enter(f"starting {config.cell}")
    backend = backends.load(config, launch, place)
    # before anything is exchanged that fails, or trains two different things, where ranks differ
    files = write_start(config, launch, log, backend, place, workload.facts(config), turns)
    network = workload.network
    settings = require_alike(config, backend, network)
    batches = data.batches(config, launch.rank, workload.images, pulse.tick)
    samples = Input(config, batches, place.torch_device)
    classes = None if config.emulate is not None else workload.images.classes
    parity, observers = None, list[Observer]()  # before a framework wraps the network
    if config.observe != "nothing":
        from bench.instrument.breakdown import Breakdown

        observers.append(Breakdown(network, place.stopwatch(), config.accumulate))
    if config.inject_ms:
        observers.append(Sleep(config.inject_ms / 1000))
    if workload.emulation is not None:
        observers.append(workload.emulation)
    elif config.averages:
        parity = Parity(config, backend, network, parity_steps, parity_elements, classes)
        observers.append(parity)
    observer = Observers(*observers)
    return Rig(
        config=config,
        launch=launch,
        place=place,
        workload=workload,
        backend=backend,
        samples=samples,
        user_files=files,
        settings=settings,
        parity=parity,
        observer=observer,
        loop=Loop(config, backend, network, samples, observer, classes=classes),
    )


def _load(
    config: RunConfig, launch: Launch, pulse: Pulse, weights_apart: bool
) -> tuple[Device, Workload]:
    torch.set_num_threads(config.threads)
    place = device.choose(config, launch)
    pulse.enter("loading data")
    images = data.load_images(config)
    if launch.rank == 0 and (doubt := getattr(images, "doubt", "")):
        say(f"warning: {doubt}")
    held_out = None if config.epochs is None else data.load_held_out(config, images)
    pulse.enter("building the model")
    seed = config.seed + launch.rank if weights_apart else config.seed
    network = models.build_model(config.model_copy(update={"seed": seed}), images.classes)
    models.prepare(network, config, images)
    network = network.to(place.torch_device)
    emulation = None
    if config.emulate is not None:
        from bench.instrument.emulation import Emulation

        emulation = Emulation(network, config, launch.rank)
        network = emulation.model
    return place, Workload(images, held_out, network, emulation)
