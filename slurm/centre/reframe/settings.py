"""One machine without a scheduler, for ReFrame: copy it to your site's system."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # of the checkout
PARTITION = {
    "name": "cpu",
    "scheduler": "local",  # `slurm` or `squeue`, with the launcher `srun`, on a cluster
    "launcher": "mpirun",
    "environs": ["hvd-ddp"],
    "max_jobs": 1,  # one after the other: they share the cores
    "processor": {"num_cpus": os.cpu_count()},
    "extras": {"ranks_per_node": 2},
}
ENVIRONMENT = {
    "name": "hvd-ddp",
    "prepare_cmds": [f". {ROOT}/.venv/bin/activate"],
    "env_vars": [["PYTHONPATH", str(ROOT)]],
}
site_configuration = {
    "systems": [{"name": "machine", "hostnames": [".*"], "partitions": [PARTITION]}],
    "environments": [ENVIRONMENT],
}
