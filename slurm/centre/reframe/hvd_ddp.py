"""A ReFrame test of each framework at each scale: reframe -C settings.py -c hvd_ddp.py -r."""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

SCALES = {"1_rank": 1, "1_node": 1, "2_nodes": 2, "4_nodes": 4, "8_nodes": 8}  # nodes
# mpirun would hold a rank and all its threads to one core; of srun, ranks wait for a dead one
LAUNCHER = {"mpirun": ["--bind-to none"], "srun": ["--kill-on-bad-exit=1"]}


@rfm.simple_test
class HvdDdpRun(rfm.RunOnlyRegressionTest):
    """Values are set by `-S HvdDdpRun.NAME=VALUE`; scales are tags as well."""

    backend = parameter(["ddp", "horovod"])
    scale = parameter(SCALES)
    workload = variable(str, value="--batch-per-rank 128 --image-size 224")
    transport = variable(str, value="")  # default: MPI on CPUs, NCCL on GPUs
    network = variable(str, value="")  # what NCCL must say that it uses, as "IB"
    # images/s of one device that must be reached but for `tolerance`, or a JSON file of them:
    # {"ddp": {"1_node": 1010.0}}
    expected = variable(str, value="")
    tolerance = variable(float, value=0.05)

    valid_systems = ["*"]
    valid_prog_environs = ["hvd-ddp"]
    executable = "python"
    time_limit = "10m"
    sourcesdir = None
    keep_files = ["run.jsonl"]
    maintainers = ["horovod-vs-ddp"]

    @run_after("init")
    def name_tags(self):
        self.tags = {"production", "maintenance", self.scale}

    @run_after("setup")
    def fit(self):
        """Set the ranks a node: as the partition's `extras` say, else one per GPU, else one."""
        partition = self.current_partition
        gpus = sum(device.num_devices for device in partition.select_devices("gpu"))
        full = int(partition.extras.get("ranks_per_node", gpus or 1))
        self.num_tasks_per_node = 1 if self.scale == "1_rank" else full
        self.num_tasks = self.num_tasks_per_node * SCALES[self.scale]
        self.num_cpus_per_task = max(1, (partition.processor.num_cpus or 1) // full)
        options = {"backend": self.backend, "device": "cuda" if gpus else "cpu"}
        options |= {"transport": self.transport} if self.transport else {}
        options |= {} if gpus else {"threads": self.num_cpus_per_task}
        options |= {"world-size": self.num_tasks, "log-path": "run.jsonl"}
        words = [f"--{name} {value}" for name, value in options.items()]
        self.executable_opts = ["-m bench", *words, self.workload]

    @run_before("run")
    def launch(self):
        name = self.current_partition.launcher_type.registered_name
        self.job.launcher.options = LAUNCHER.get(name, [])

    @run_before("performance")
    def refer(self):
        value = self.expected
        if value.endswith(".json"):
            table = json.loads(Path(value).read_text())
            value = table.get(self.backend, {}).get(self.scale)
        if value:
            least = (-self.tolerance, None, "img/s")
            total = float(value) * self.num_tasks
            self.reference = {"*": {"per_device": (float(value), *least), "total": (total, *least)}}

    def merits(self):
        return json.loads(str(sn.extractsingle(r"^hvd-ddp-fom (.*)$", self.stdout, 1)))

    @sanity_function
    def is_whole(self):
        """Check that all ranks made one world, passed all checks, and went over this network."""
        line = rf"^Total img/sec on {self.num_tasks} [CG]PU\(s\): "
        merits = self.merits()
        return sn.all(
            [
                sn.assert_found(line, self.stdout),
                sn.assert_true(merits["ok"], "a check of the run failed"),
                sn.assert_eq(merits["ranks"], self.num_tasks),
                sn.assert_in(self.network, merits["network"] or ""),
            ]
        )

    @performance_function("img/s")
    def per_device(self):
        return self.merits()["images_per_s"] / self.num_tasks

    @performance_function("img/s")
    def total(self):
        return self.merits()["images_per_s"]

    @performance_function("img/s")
    def plus_minus(self):
        """Read half the 95 % interval of the total inside this run; nan where it has one window."""
        half = self.merits()["plus_minus"]
        return float("nan") if half is None else half
