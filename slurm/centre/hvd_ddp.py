"""A ReFrame test of each framework at each scale: reframe -C settings.py -c hvd_ddp.py -r."""

import json

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    sanity_function,
    variable,
)

NODES = {"1_rank": 1, "1_node": 1, "2_nodes": 2, "4_nodes": 4, "8_nodes": 8}
# mpirun would hold a rank and all its threads to one core; of srun, ranks wait for a dead one
LAUNCHER = {"mpirun": ["--bind-to none"], "srun": ["--kill-on-bad-exit=1"]}


@rfm.simple_test
class HvdDdpRun(rfm.RunOnlyRegressionTest):
    """Values are set by `-S HvdDdpRun.NAME=VALUE`; scales are tags as well."""

    backend = parameter(["ddp", "horovod"])
    scale = parameter(NODES)
    workload = variable(str, value="--batch-per-rank 128 --image-size 224")
    expected = variable(float, value=0.0)  # images/s of one device; 95 % of it must be reached
    valid_systems = ["*"]
    valid_prog_environs = ["hvd-ddp"]
    executable = "python"
    time_limit = "10m"
    sourcesdir = None
    keep_files = ["run.jsonl"]

    @run_after("setup")
    def fit(self):
        """Set the ranks of a node: as the partition's `extras` say, else one for each GPU."""
        partition = self.current_partition
        gpus = sum(device.num_devices for device in partition.select_devices("gpu"))
        full = int(partition.extras.get("ranks_per_node", gpus or 1))
        self.tags = {self.scale}
        self.num_tasks_per_node = 1 if self.scale == "1_rank" else full
        self.num_tasks = self.num_tasks_per_node * NODES[self.scale]
        self.num_cpus_per_task = max(1, (partition.processor.num_cpus or 1) // full)
        where = "--device cuda" if gpus else f"--device cpu --threads {self.num_cpus_per_task}"
        world = f"--world-size {self.num_tasks} --log-path run.jsonl"
        self.executable_opts = [
            "-m bench",
            f"--backend {self.backend}",
            where,
            world,
            self.workload,
        ]
        self.job.launcher.options = LAUNCHER.get(partition.launcher_type.registered_name, [])
        if self.expected:
            self.reference = {"*": {"per_device": (self.expected, -0.05, None, "img/s")}}

    def merits(self):
        return json.loads(str(sn.extractsingle(r"^hvd-ddp-fom (.*)$", self.stdout, 1)))

    @sanity_function
    def is_whole(self):
        """Check that all ranks made one world, which passed all checks of the run."""
        merits = self.merits()
        return sn.all([sn.assert_true(merits["ok"]), sn.assert_eq(merits["ranks"], self.num_tasks)])

    @performance_function("img/s")
    def per_device(self):
        return self.merits()["images_per_s"] / self.num_tasks

    @performance_function("img/s")
    def total(self):
        return self.merits()["images_per_s"]
