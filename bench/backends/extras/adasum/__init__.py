"""Adasum: Horovod that adds up updates by how far they point the same way (Maleki et al. 2021)."""

from bench.backends.facts import BackendFacts, Look

_UNTRIED = "it was not tried here; leave it out"
_EARLY = "updates are made inside the backward pass, parameter by parameter; leave it out"

FACTS = BackendFacts(
    name="adasum",
    label="Horovod with Adasum",
    short_label="Adasum",
    implementation="bench.backends.extras.adasum.adaptive:Adasum",
    transports=("mpi",),
    powers_of_two=True,
    applies="each rank's own update, joined by Adasum, which adds orthogonal ones and averages "
    "equal ones",
    beside="horovod",
    knobs={"tuned": ("fusion_mib", "cycle_ms")},
    refused={
        ("settings", "matched"): "Horovod takes no buckets with it; use --settings shipped",
        ("overlap", "off"): "Horovod takes no groups with it; leave it out",
        ("clip_norm", ...): _EARLY,
        ("compression", "fp16"): _UNTRIED,
        ("compression", "bf16"): _UNTRIED,
        ("precision", "bf16"): _UNTRIED,
        ("checkpoint", True): _UNTRIED,
        ("compile", True): _UNTRIED,
        ("unused_parameters", True): _UNTRIED,
        ("observe", ...): "only its speed is reported; leave it out",
        ("exchange", "off"): "without it nothing else is optimised; use --backend horovod",
        ("emulate", ...): "emulated gradients are checked for their mean; leave it out",
    },
    packages=("horovod",),
    code_folders=("/horovod/",),
    looks={"mpi": Look(colour="#997700", marker="d", marker_size=6.0, line_width=1.2)},
)
