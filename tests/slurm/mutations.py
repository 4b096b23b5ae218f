"""Mutated and hostile study and site files through read, plan and render: python -m
tests.slurm.mutations --inputs 100000.

Counts tracebacks, job scripts that bash cannot read, and values of a file that a shell executed:
each must be 0. Every twenty-fifth script is run for real, with programs that do nothing in place of
launcher and Python.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench.config import UsageError
from bench.study.files import read_study, read_text
from bench.study.plan import plan
from slurm.directives import Request
from slurm.fit import fit, jobs, text_of
from slurm.load import read_site
from slurm.render import render_batch, render_job, render_report
from slurm.site import Site
from tests.slurm.studies import ROOT, SMALL

OWN = SMALL.replace(
    'dataset = "digits"',
    'dataset = "my.images:make"\nmodel = "my.models:make"\ndata_dir = "my data"',
)
RICH = """\
name = "rich"
title = "every key that is free text"
scheduler = "slurm"
launch = "srun"
launch_args = ["--label", "--comment=x y"]
mpi = "pmix"
transport = "gloo"
slurm_min_version = "22.05"
doc_date = "today"
sources = ["a page"]
notes = ["a note", "another"]
[access]
account = "PAS1"
partition = "gpu"
constraint = "gpu&hbm80g"
extra = ["--licenses=scratch", '--comment="a b"']
[node]
cores = 8
gpu = "none"
interconnect = "wire"
[cpu]
ranks_per_node = 2
bind = "cores"
[network]
ifname = "eth0,eth1"
[setup]
modules = ["gcc/12", "openmpi"]
venv = "my venv"
[limits]
max_nodes = 64
[paths]
data = "my data"
node_local = ["/tmp"]
[env]
OPTION = "a value"
OTHER = "1"
"""
FREE = (
    b"question|title|notes|model|dataset|data|data_dir|venv|modules|launch_args|mpirun_args|"
    b"hostfile|[A-Z_]+|gpu|sources"
)
SHIPPED = sorted((ROOT / "slurm/studies").glob("*.toml"))
STUDIES = [SMALL, OWN, OWN, *(path.read_text() for path in SHIPPED)]
SITES = {p.stem: p.read_text() for p in sorted((ROOT / "slurm/sites").glob("*.toml"))}
SITES["rich"] = RICH
MARK = "MARK"
COMMANDS = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"\ntouch {MARK}\n",
    f"\r\ntouch {MARK}\r\n",
    f"; touch {MARK};",
    f"' ; touch {MARK}; '",
    f'" ; touch {MARK}; "',
    f"\\\ntouch {MARK} #",
    f"a[$(touch {MARK})]",
    f"\nEND_OF_STUDY\ntouch {MARK}\n",
    f"\u2028touch {MARK}",
    f"{{{{ 1 }}}} %}} <# touch {MARK}",
    f"\n#SBATCH --wrap='touch {MARK}'\n",
)
PLAIN = "true false 0 -1 1.5 nan inf 1e308 0x10 1_000 1000000000 07:32:00 2026-11-21"
VALUES = (
    *PLAIN.split(),
    *(
        '""',
        '"x"',
        f'"{"x" * 5000}"',
        '"\\u0000"',
        '"\\ud800"',
        '"é\\n"',
        "'''\n'''",
        "9" * 30,
        "9" * 5000,
    ),
    *("[]", "{}", "[1, 1]", '["a", "a"]', "[[1]]", "[" * 300 + "]" * 300, "[" * 5000, "{a = 1}"),
    *('"ddp/mpi"', '["single"]', '["ddp", "horovod"]', "[1, 2, 4]", "[1000000]"),
)
RUN_EVERY = 25


def mutate(text: str, rng: random.Random) -> bytes:
    """One to three changes: of bytes, of lines, of values, or commands put into strings."""
    data = text.encode()
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice((_bytes, _lines, _value, _value, _commands, _commands, _commands))(
            data, rng
        )
    return data


def _bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    junk = bytes(
        rng.randrange(256 if rng.random() < 0.1 else 127) for _ in range(rng.randint(0, 4))
    )
    if rng.random() < 0.1:
        return data[:at]
    return data[:at] + junk + data[at + rng.randint(0, 8) :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[other])
    elif change == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        foreign = rng.choice([*STUDIES, *SITES.values()]).encode().splitlines(keepends=True)
        lines.insert(at, rng.choice(foreign))
    return b"".join(lines)


def _value(data: bytes, rng: random.Random) -> bytes:
    places = list(re.finditer(rb"(?m)^(\s*[\w.]+ *= *)(.*)$", data))
    if not places:
        return data
    place = rng.choice(places)
    return data[: place.start(2)] + rng.choice(VALUES).encode() + data[place.end(2) :]


def _commands(data: bytes, rng: random.Random) -> bytes:
    """A command behind what some string says; not in a prologue or a container,
    which are commands.
    """
    places = [p for p in re.finditer(rb'"([^"\\\n]*)"', data) if not _is_code(data, p.start())]
    if rng.random() < 0.8:  # most others are words of a list, and refused
        places = [
            p
            for p in places
            if re.match(rb"(%s) *=" % FREE, data[data.rfind(b"\n", 0, p.start()) + 1 :])
        ] or places
    for place in sorted(
        rng.sample(places, min(len(places), rng.choice((1, 1, 2)))), key=lambda p: -p.start()
    ):
        text = place[1].decode(errors="replace") + rng.choice(COMMANDS)
        data = data[: place.start()] + json.dumps(text).encode() + data[place.end() :]
    return data


def _is_code(data: bytes, at: int) -> bool:
    line = data[data.rfind(b"\n", 0, at) + 1 : at]
    return b"prologue" in line or b"container" in line


class Bench:
    """A folder to try inputs in, and what has become of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.folder = folder
        (folder / "slurm" / "driver").mkdir(parents=True)
        (folder / "slurm" / "driver" / "__main__.py").touch()
        (folder / "bin").mkdir()
        (folder / "bin" / "module").write_text("#!/bin/sh\nexit 0\n")
        (folder / "bin" / "module").chmod(0o755)

    def try_one(self, number: int) -> None:
        """One mutated study at a shipped site, or a shipped study at one mutated site."""
        rng = self.rng
        name = rng.choice([*sorted(SITES), *["rich"] * 4])
        study, site = rng.choice(STUDIES).encode(), SITES[name].encode()
        if rng.random() < 0.5:
            study = mutate(study.decode(), rng)
        else:
            site = mutate(site.decode(), rng)
        (self.folder / "study.toml").write_bytes(study)
        (self.folder / f"{name}.toml").write_bytes(site)
        words = rng.choice(COMMANDS) if rng.random() < 0.2 else ""
        results = Path("results") / (words.replace("/", "").replace("\0", "") or "mine")
        account = rng.choice(COMMANDS) if rng.random() < 0.02 else "PAS0001"
        try:
            scripts = self._render(self.folder / f"{name}.toml", results, account)
        except UsageError:
            self.counts["refused in one line"] += 1
            return
        except Exception:
            self._fault("traceback", number, study, site, traceback.format_exc())
            return
        self.counts["rendered"] += 1
        for site_found, script in scripts:
            self._try_script(script, site_found, number, (study, site))

    def _render(self, site_file: Path, results: Path, account: str) -> list[tuple[Site, str]]:
        source = self.folder / "study.toml"
        written, site = read_study(source), read_site(str(site_file))
        study = fit(written, site, (), source)
        folder = results / study.name
        runs = [
            run for block in plan(study, min(2, study.blocks), folder / "runs") for run in block
        ]
        text = text_of(study, written, read_text(source))
        if site.scheduler == "none":
            return [(site, render_job(study, text, site, runs[:2], folder))]
        request = Request(site, account)
        job = jobs(runs, site)[-1]
        few = replace(job, runs=job.runs[:2])
        return [
            (site, render_batch(study, text, request, few, folder)),
            (site, render_report(study, request, folder)),
        ]

    def _try_script(
        self, script: str, site: Site, number: int, inputs: tuple[bytes, bytes]
    ) -> None:
        path = self.folder / "job.sh"
        path.write_text(script)
        complaint = _complaint(script)
        self.counts["scripts that bash has read"] += 1
        if complaint and not _complaint(
            "\n".join(site.setup.prologue)
        ):  # a prologue is the user's own bash, right or wrong
            self._fault("script that bash cannot read", number, *inputs, complaint)
        if (
            self.counts["scripts that bash has read"] % RUN_EVERY
            or site.setup.prologue
            or site.setup.container
        ):
            return
        self.counts["scripts run"] += 1
        self._run(path, site)
        if marks := [str(p) for p in self.folder.rglob(f"*{MARK}*") if p.name == MARK]:
            self._fault("value that a shell executed", number, *inputs, ", ".join(marks))
            for mark in marks:
                Path(mark).unlink()

    def _run(self, path: Path, site: Site) -> None:
        env = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHON": "/bin/true",
            "SLURM_JOB_ID": "1",
        }
        quiet = subprocess.DEVNULL
        command = ["timeout", "-k", "5", "60", "bash", str(path)]
        subprocess.run(command, cwd=self.folder, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        shutil.rmtree(self.folder / "results", ignore_errors=True)

    def _fault(self, kind: str, number: int, study: bytes, site: bytes, why: str) -> None:
        self.counts[kind] += 1
        if len(self.faults) < 20:
            self.faults.append(
                f"input {number}: {kind}\n{why}\n--- study\n{study!r}\n--- site\n{site!r}\n"
            )


def _complaint(script: str) -> str:
    """What bash says against a script that it only reads."""
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True).stderr


def look(inputs: int, seed: int) -> Bench:
    """Try that many inputs in a folder that is gone afterwards."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder).resolve(), seed)
        os.chdir(ROOT)
        try:
            for number in range(inputs):
                bench.try_one(number)
                if sys.stderr.isatty() and number % 500 == 0:
                    print(f"\r{number}/{inputs} {dict(bench.counts)}", end="", file=sys.stderr)
        finally:
            os.chdir(here)
    return bench


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.mutations", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    bench = look(asked.inputs, asked.seed)
    print(*bench.faults, sep="\n", file=sys.stderr)
    kinds = ("refused in one line", "rendered", "scripts that bash has read", "scripts run")
    faults = ("traceback", "script that bash cannot read", "value that a shell executed")
    print(
        f"{asked.inputs} inputs, seed {asked.seed}: "
        + ", ".join(f"{bench.counts[kind]} {kind}" for kind in kinds)
    )
    print(", ".join(f"{bench.counts[fault]} {fault}" for fault in faults))
    return 1 if bench.faults else 0


if __name__ == "__main__":
    sys.exit(main())
