"""PowerSGD: DDP whose hook sends gradients as products of two vectors (Vogels et al. 2019)."""

from bench.backends.facts import BackendFacts, Look

_UNTRIED = "it was not tried here; leave it out"
_TYPE = "its vectors travel in the gradients' own type; leave it out"

FACTS = BackendFacts(
    name="powersgd",
    label="PyTorch DDP with PowerSGD",
    short_label="PowerSGD",
    implementation="bench.backends.extras.powersgd.compressed:PowerSgd",
    transports=("mpi",),
    applies="rank-1 approximations of the gradients' mean, with the error kept for the next step",
    beside="ddp",
    knobs={"matched": ("bucket_mib",), "tuned": ("bucket_mib",)},
    refused={
        ("compression", "fp16"): _TYPE,
        ("compression", "bf16"): _TYPE,
        ("precision", "bf16"): "it cannot make bfloat16 vectors orthogonal; use float32",
        ("checkpoint", True): "a checkpoint does not hold the errors that it keeps; leave it out",
        ("observe", ...): "only its speed is reported; leave it out",
        ("exchange", "off"): "without it nothing else is optimised; use --backend ddp",
        ("emulate", ...): "emulated gradients are checked for their mean; leave it out",
        ("compile", True): _UNTRIED,
        ("unused_parameters", True): _UNTRIED,
    },
    packages=("torch",),
    code_folders=("/torch/distributed/", "/torch/nn/parallel/"),
    looks={"mpi": Look(colour="#6699CC", marker="p", marker_size=7.0, line_width=1.4)},
)
