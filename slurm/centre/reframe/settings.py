"""Systems for ReFrame: one machine without a scheduler, and a Slurm (the test cluster's)."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # of the checkout

site_configuration = {
    "systems": [
        {
            "name": "machine",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "cpu",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "environs": ["hvd-ddp"],
                    "max_jobs": 1,  # one after the other: they share the cores
                    "processor": {"num_cpus": os.cpu_count()},
                    "extras": {"ranks_per_node": 2},
                }
            ],
        },
        {
            "name": "cluster",
            "hostnames": ["login"],
            "partitions": [
                {
                    "name": "cpu",
                    "scheduler": "squeue",  # `slurm` where Slurm keeps accounts
                    "launcher": "srun",
                    "environs": ["hvd-ddp"],
                    "access": ["--partition=main"],  # also --account=, --reservation=
                    "env_vars": [["SLURM_MPI_TYPE", "pmix"], ["SLURM_PMIX_FENCE", "ring"]],
                    "max_jobs": 1,
                    "extras": {"ranks_per_node": 1},
                }
            ],
        },
    ],
    "environments": [
        {
            "name": "hvd-ddp",
            "prepare_cmds": [f". {ROOT}/.venv/bin/activate"],
            "env_vars": [["PYTHONPATH", str(ROOT)]],
        }
    ],
}
