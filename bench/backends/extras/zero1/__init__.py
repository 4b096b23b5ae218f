"""ZeRO-1: DDP whose optimiser state is divided over the ranks (Rajbhandari et al. 2020)."""

from bench.backends.facts import BackendFacts, Look

FACTS = BackendFacts(
    name="zero1",
    label="PyTorch DDP with ZeRO-1",
    short_label="ZeRO-1",
    implementation="bench.backends.extras.zero1.sharded:Zero1",
    transports=("mpi", "gloo", "nccl"),
    knobs={"matched": ("bucket_mib",), "tuned": ("bucket_mib",)},
    refused={
        ("checkpoint", True): "every rank has a part of the optimiser's state; leave it out",
    },
    packages=("torch",),
    interface_variable="GLOO_SOCKET_IFNAME",
    gloo_of="torch",
    nccl_of="ddp",
    code_folders=("/torch/distributed/", "/torch/nn/parallel/"),
    looks={
        "mpi": Look(colour="#332288", marker="<", marker_size=7.0, line_width=1.4),
        "gloo": Look(colour="#88CCEE", marker=">", marker_size=7.0, line_width=1.4),
        "nccl": Look(colour="#44AA99", marker="4", marker_size=7.0, line_width=1.4),
    },
)
