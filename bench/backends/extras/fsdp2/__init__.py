"""FSDP2: torch's `fully_shard`, whose parameters stay gathered from forward to backward."""

from bench.backends.facts import BackendFacts, Look

_UNSEEN = "gradients arrive in parts, which its hooks do not see; leave it out"
_WHOLE = "its gradients travel in the parameters' own type; leave it out"

FACTS = BackendFacts(
    name="fsdp2",
    label="PyTorch FSDP2",
    short_label="FSDP2",
    implementation="bench.backends.extras.fsdp2.sharded:Fsdp2",
    transports=("gloo", "nccl"),
    divides=True,
    refused={
        ("compression", "fp16"): _WHOLE,
        ("compression", "bf16"): _WHOLE,
        ("memory_format", "channels_last"): "it divides contiguous parameters; leave it out",
        ("sync_batchnorm", True): "it was not tried here; leave it out",
        ("unused_parameters", True): "it was not tried here; leave it out",
        ("compile", True): "it was not tried here; leave it out",
        ("observe", "breakdown"): _UNSEEN,
        ("observe", "framework"): "it has no instruments of its own; leave it out",
        ("emulate", ...): _UNSEEN,
        ("epochs", ...): "each rank judges samples alone, with parts of the parameters; use ddp",
    },
    packages=("torch",),
    interface_variable="GLOO_SOCKET_IFNAME",
    gloo_of="torch",
    nccl_of="ddp",
    code_folders=("/torch/distributed/",),
    looks={
        "gloo": Look(colour="#AA4499", marker="H", marker_size=8.0, line_width=1.6),
        "nccl": Look(colour="#882255", marker="h", marker_size=8.0, line_width=1.6),
    },
)
