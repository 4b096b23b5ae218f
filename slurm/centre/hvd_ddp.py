"""A ReFrame test of DDP and Horovod at 1 to 8 nodes: reframe -C SETTINGS -c hvd_ddp.py -r."""

import json

import reframe as rfm
import reframe.core.builtins as rf
import reframe.utility.sanity as sn

# mpirun would hold a rank and all its threads to one core; of srun, ranks wait for a dead one
LAUNCHER = {"mpirun": ["--bind-to none"], "srun": ["--kill-on-bad-exit=1"]}


@rfm.simple_test
class HvdDdpRun(rfm.RunOnlyRegressionTest):
    """One run of `python -m bench`; `-S HvdDdpRun.workload=OPTIONS` sets batch and image size."""

    backend = rf.parameter(["ddp", "horovod"])
    nodes = rf.parameter([1, 2, 4, 8])
    workload = rf.variable(str, value="--batch-per-rank 128 --image-size 224")
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "python"
    time_limit = "10m"
    sourcesdir = None
    keep_files = ["run.jsonl"]

    @rf.run_after("setup")
    def fit(self):
        """Set options and ranks per node: extras['ranks_per_node'], else one per GPU, else one."""
        partition = self.current_partition
        gpus = sum(device.num_devices for device in partition.select_devices("gpu"))
        ranks = int(partition.extras.get("ranks_per_node", gpus or 1))
        self.num_tasks_per_node, self.num_tasks = ranks, ranks * self.nodes
        self.num_cpus_per_task = max(1, (partition.processor.num_cpus or 1) // ranks)
        where = "--device cuda" if gpus else f"--device cpu --threads {self.num_cpus_per_task}"
        run = f"-m bench --backend {self.backend} --world-size {self.num_tasks}"
        self.executable_opts = [run, "--log-path run.jsonl", where, self.workload]
        self.job.launcher.options = LAUNCHER.get(partition.launcher_type.registered_name, [])

    def merits(self):
        return json.loads(str(sn.extractsingle(r"^hvd-ddp-fom (.*)$", self.stdout, 1)))

    @rf.sanity_function
    def is_whole(self):
        """Check that the run passed its own checks, and that all ranks asked for took part."""
        merits = self.merits()
        return sn.all([sn.assert_true(merits["ok"]), sn.assert_eq(merits["ranks"], self.num_tasks)])

    @rf.performance_function("img/s")
    def total(self):
        return self.merits()["images_per_s"]
