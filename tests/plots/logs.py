"""Synthetic studies, written through the real log writer: known true times, seeded noise."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.backends.catalogue import parts
from bench.config import RunConfig
from bench.record import CHECKS, SCHEMA, RunLog, append_event
from bench.record.writer import seal

_PIDS = itertools.count(100)  # every run has processes of its own


def host(world_size: int, **changes: Any) -> dict[str, Any]:
    """Make provenance as a real run records it; `changes` replaces entries of the whole."""
    rank = {
        "hostname": "node1",
        "affinity": [0, 1],
        "threads": 1,
        "cpu": "Test CPU @ 2 GHz",
        "cpus_on_node": 2,
    }
    return {
        "ranks": [
            {**rank, "rank": r, "local_rank": r, "pid": next(_PIDS)} for r in range(world_size)
        ],
        "git": {"commit": "fedcba", "bench_tree": "0123abc", "bench_dirty": False},
        "platform": "Linux-test",
        "versions": {
            "python": "3.11.7",
            "torch": "2.13.0+cpu",
            "horovod": "0.28.1",
            "mpi": "Open MPI 5.0.11",
        },
        "env": {"OMP_NUM_THREADS": "1"},
        **changes,
    }


def config(
    cell: str, world_size: int = 1, batch: int = 16, launch: int | None = 0, **fields: Any
) -> RunConfig:
    """Configure a run of `cell` at `batch` images per rank, with 4 windows of 5 steps after 10."""
    cell, _, arm = cell.partition("@")  # 'ddp/mpi@again' is of the arm again
    backend, transport = parts(cell)
    return RunConfig(
        backend=backend,
        transport=transport or "none",
        arm=arm or None,
        world_size=world_size,
        launch=launch,
        **{"batch_per_rank": batch, "curves": ("weak",), "study": "test", **fields},
    )


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def write(
    path: Path,
    run: RunConfig,
    step_seconds: float,
    noise: np.random.Generator | None = None,
    *,
    provenance: Mapping[str, Any] | None = None,
    windows: int | None = None,
    end: Mapping[str, Any] | None = None,
    parts: Mapping[str, Sequence[float]] | None = None,
    first_step: float = 1.0,
) -> Path:
    """Write one log. Rank r is slower than rank 0 by r %; `step_seconds` is the last rank's time.

    `windows` stops early and writes no end, `end` replaces fields of the end event; `parts` is what
    the breakdown of every step says, one number a rank; `first_step` by which factor the first step
    of each window is longer.
    """
    log = RunLog(path)
    provenance = host(run.world_size) if provenance is None else provenance
    log.write(
        "start", schema=SCHEMA, config=run.model_dump(mode="json"), host=provenance, workload={}
    )
    slower = 1 + 0.01 * np.arange(run.world_size)[:, None]
    share = slower / slower[-1]
    steps = run.steps_per_window

    def seconds(n: int) -> Any:
        jitter = np.ones(n) if noise is None else np.exp(noise.normal(0, 0.01, n))
        return step_seconds * jitter * share

    log.write("steps", phase="warmup", index=0, seconds=(1.5 * seconds(run.warmup_steps)).tolist())
    for index in range(run.windows if windows is None else windows):
        if run.lead_in_steps:
            before = 1.5 * seconds(run.lead_in_steps)
            log.write("steps", phase="lead_in", index=index, seconds=before.tolist())
        each = seconds(steps)
        each[:, 0] *= first_step
        log.write("steps", phase="window", index=index, seconds=each.tolist())
        if parts is not None:
            every = {name: [[one] * steps for one in ranks] for name, ranks in parts.items()}
            log.write("breakdown", phase="window", index=index, **every)
        took = {"seconds": float(each[-1].sum()), "input_seconds": [0.0] * run.world_size}
        log.write("window", index=index, steps=steps, **took)
    if windows is None:
        sha = digest(run.launch, run.seed, run.samples_per_step, run.world_size)
        facts = {
            "status": "ok",
            "checks": dict.fromkeys(CHECKS, True),
            "samples": run.steps * run.samples_per_step,
        }
        log.write("end", **{**facts, "parameters_sha256": sha, **(end or {})})
        append_event(path, "exit", code=0, timed_out=False, limit_s=60.0)
    return path


def edit(path: Path, old: str, new: str, count: int = -1) -> None:
    """Write a log as a run with other facts would have: the change, and digests that fit."""
    path.write_bytes(resealed(path.read_text().replace(old, new, count).encode()))


def add(
    path: Path, name: str, events: Sequence[Mapping[str, Any]], workload: Mapping[str, Any]
) -> None:
    """Put events before a log's end, and what is derived of its work into its start."""
    lines = path.read_text().splitlines(keepends=True)
    lines[0] = lines[0].replace('"workload": {}', f'"workload": {json.dumps(workload)}')
    place = next(i for i, line in enumerate(lines) if '"event": "end"' in line)
    whole = path.with_suffix(".part")
    whole.write_text("".join(lines[:place]))
    for event in events:
        append_event(whole, name, **event)
    path.write_bytes(resealed(whole.read_bytes() + "".join(lines[place:]).encode()))
    whole.unlink()


def resealed(text: bytes) -> bytes:
    """Make the digests of the log's `end` and `exit` anew where it has any."""
    found = b""
    for line in text.splitlines(keepends=True):
        head, mark, _ = line.rpartition(b', "sha256": "')
        found += seal(found, head + b"}\n") if mark else line
    return found


def study(
    folder: Path,
    launches: int = 6,
    cells: Mapping[str, float] | None = None,
    sd: float = 0.02,
    seed: int = 0,
    **fields: Any,
) -> Path:
    """Write a weak and strong study at 1 and 2 ranks. `cells` gives each cell's slowdown of a step
    against `single`.

    True seconds of a step: 0.1 s per 16 images on a rank, times the slowdown, times 1.5 at two
    ranks (a shared machine); times a factor of the launch that all cells share, and the run's own
    noise of `sd`.
    """
    noise = np.random.default_rng(seed)
    cells = {"single": 1.0, "ddp/mpi": 1.05, "horovod/mpi": 1.155} if cells is None else cells
    for launch in range(launches):
        common = np.exp(noise.normal(0, 0.1))
        for cell, slowdown in cells.items():
            for world_size in (1,) if cell == "single" else (1, 2):
                for curve, per_rank in (("weak", 16), ("strong", 32 // world_size)):
                    run = config(
                        cell, world_size, per_rank, launch, curves=(curve,), seed=launch, **fields
                    )
                    true = 0.1 * per_rank / 16 * slowdown * (1.5 if world_size == 2 else 1.0)
                    name = f"{launch}-{curve}-{cell.replace('/', '-')}-{world_size}.jsonl"
                    write(
                        folder / "runs" / name,
                        run,
                        true * common * np.exp(noise.normal(0, sd)),
                        noise,
                    )
    return folder


def study_toml(folder: Path, launches: int = 6, margin: float = 0.02, more: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(
        f'name = "test"\nquestion = "Which is faster?"\nmargin = {margin}\nlaunches = {launches}\n'
        f"seed = 1\n{more}"
    )


def page(folder: Path) -> str:
    """Render a study's page with the details that report.html alone holds."""
    from plots.report.findings import findings
    from plots.report.page import markdown, page
    from plots.report.write import analysed

    a = analysed(folder)
    return markdown(page(a, findings(a), []), deepest=2)


def rows(text: str, heading: str) -> list[dict[str, str]]:
    """Read the first table under a heading: what each row says and what all say above the table."""
    lines = text.split(f"## {heading}\n")[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    head, _, *cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table)
    above = [line for line in lines[:start] if line.startswith("In every row: ")]
    alike = "".join(above).removeprefix("In every row: ").removesuffix(".").split("; ")
    once = dict(one.split(": ", 1) for one in filter(None, alike))
    return [once | dict(zip(head, row, strict=True)) for row in cells]
