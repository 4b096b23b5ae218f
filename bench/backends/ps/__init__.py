"""The parameter server: servers beside the ranks hold the parameters, over mpi4py."""

from bench.backends.facts import BackendFacts, Look

FACTS = BackendFacts(
    name="ps",
    label="Parameter server",
    short_label="parameter server",
    implementation="bench.backends.ps.worker:ParameterServer",
    server="bench.backends.ps.server:serve",
    transports=("mpi",),
    knobs=dict.fromkeys(("shipped", "matched", "tuned"), ("bucket_mib", "servers", "mode")),
    cuts_freely=True,
    refused={
        ("sync_batchnorm", True): "it exchanges gradients alone; leave it out",
        ("compression", "fp16"): "its keys travel as float32; leave it out",
        ("compression", "bf16"): "its keys travel as float32; leave it out",
        ("observe", "framework"): "it has no instruments of its own; use --observe breakdown",
    },
    packages=("mpi4py",),
    looks={"mpi": Look(colour="#882255", marker="P", marker_size=7.5, line_width=1.5)},
)
