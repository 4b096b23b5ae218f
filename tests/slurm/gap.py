"""How long a Slurm job script takes from one step to the next, apart from what the steps take:
python -m tests.slurm.gap [TIMES].

Steps are a shell script that writes a complete log and its own beginning and end, so what is left
is the job script's doing.
"""

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.study.files import read_study
from bench.study.plan import plan
from slurm.directives import Request
from slurm.fit import fit, jobs
from slurm.load import read_site
from slurm.render import render_batch
from tests.slurm.fake_slurm import install
from tests.slurm.studies import ROOT, write

# The last word is the log's path; a preflight has none, and must say that nothing failed.
_SRUN = """\
#!/bin/bash
began=$EPOCHREALTIME
for log; do :; done
case $log in
  *.jsonl) echo '{{"event": "end", "status": "ok"}}' >>"$log" ;;
  *) echo "-- 1 ok, 0 warning, 0 failure" ;;
esac
echo srun >>"{folder}/started"
echo "$log $began $EPOCHREALTIME" >>"{folder}/steps"
"""
_SHIM = """\
#!/bin/bash
echo {name} >>"{folder}/started"
exec {real} "$@"
"""
# What a shell script may start that takes time, or would with a slow file system or a busy
# controller.
WATCHED = (
    "awk",
    "cat",
    "date",
    "env",
    "grep",
    "mkdir",
    "mv",
    "python",
    "python3",
    "sed",
    "sha256sum",
    "sleep",
    "sort",
    "tail",
    "timeout",
    "wc",
)


class Bare:
    """One block of 42 runs at one and two nodes in one job, whose steps do nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = write(
            folder,
            world_sizes="nodes = [1, 2]",
            cells='cells = ["single", "ddp/gloo", "horovod/gloo", "ddp/mpi", "horovod/mpi"]\n'
            'settings = ["shipped", "matched"]',
        )
        site = read_site("testcluster").laid_out("single")
        study = fit(read_study(source), site, (), source)
        job = jobs(plan(study, 1, folder / "results" / "small" / "runs")[0], site)[0]
        self.runs = job.runs
        self.script = folder / "job.sh"
        self.script.write_text(
            render_batch(
                study, source.read_text(), Request(site), job, folder / "results" / "small"
            )
        )
        self.bin = install(folder, "scontrol", "squeue")
        self._add("srun", _SRUN)

    def _add(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text.format(folder=self.folder, name=name, real=shutil.which(name)))
        path.chmod(0o755)

    def watch(self, names: Sequence[str] = WATCHED) -> None:
        """Note every start of these programs, which makes them slower."""
        for name in names:
            self._add(name, _SHIM)

    def run(self) -> None:
        env = {
            **os.environ,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": "r[1-2]",
            "SLURM_JOB_END_TIME": str(int(time.time()) + 36000),
            "FAKE_HOSTS": "r1 r2",
        }
        subprocess.run(
            ["bash", str(self.script)],
            cwd=ROOT,
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )

    def started(self) -> list[str]:
        """Names of the programs that were started, in order."""
        return (self.folder / "started").read_text().split()

    def gaps_s(self) -> list[float]:
        """Seconds from the end of each run's step to the beginning of the next run's."""
        steps = [line.rsplit(" ", 2) for line in (self.folder / "steps").read_text().splitlines()]
        runs = [(float(began), float(ended)) for log, began, ended in steps if "/runs/" in log]
        return [began - ended for (_, ended), (began, _) in itertools.pairwise(runs)]


def main(times: int) -> None:
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            bare = Bare(Path(folder))
            bare.run()
            gaps = bare.gaps_s()
        print(
            f"{len(gaps)} gaps: median {statistics.median(gaps)} s, largest {max(gaps)} s",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
