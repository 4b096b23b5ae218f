"""A backend as a user would bring it: PyTorch's DDP under another name, for the tests alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.backends.facts import BackendFacts

if TYPE_CHECKING:  # torch is loaded where it trains, not where it is planned
    from bench.backends.protocol import Backend
    from bench.config import RunConfig
    from bench.launch.world import Launch
    from bench.train.device import Device

FACTS = BackendFacts(
    name="fourth",
    label="Fourth framework",
    short_label="Fourth",
    implementation=f"{__name__}:start",
    transports=("gloo",),
    knobs={"matched": ("bucket_mib",), "tuned": ("bucket_mib",)},
    packages=("torch",),
    env_prefixes=("FOURTH_",),
)


def start(config: RunConfig, launch: Launch, device: Device) -> Backend:
    from bench.backends.ddp import Ddp

    class Fourth(Ddp):
        pass

    return Fourth(config, launch, device)
