"""Stands in for mpirun or srun: writes the log of the run it is asked to start without training, or
goes wrong in a chosen way.

STAND_IN is JSON: what the run at each position of its block does; anything not named is "ok".
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.config import RunConfig, parse_argv
from bench.record import CHECKS, SCHEMA, RunLog

SHOWN = ("OMPI_MCA_mpi_yield_when_idle", "OMPI_ALLOW_RUN_AS_ROOT")


def start(config: RunConfig) -> RunLog:
    """A log as far as its first event."""
    log = RunLog(config.log_path)
    here = [{"rank": rank, "hostname": socket.gethostname()} for rank in range(config.world_size)]
    host = {"ranks": here}
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=host, workload={})
    return log


def complete(config: RunConfig, step_s: float = 0.25) -> None:
    """The log of a run that did all it was asked to do."""
    log = start(config)
    for index in range(config.windows):
        if config.lead_in_steps:
            lead_in = [[step_s] * config.lead_in_steps] * config.world_size
            log.write("steps", phase="lead_in", index=index, seconds=lead_in)
        steps = [[step_s] * config.steps_per_window] * config.world_size
        log.write("steps", phase="window", index=index, seconds=steps)
        log.write(
            "window",
            index=index,
            steps=config.steps_per_window,
            seconds=step_s * config.steps_per_window,
            input_seconds=[0.0] * config.world_size,
        )
    log.write(
        "end",
        status="ok",
        checks=dict.fromkeys(CHECKS, True),
        samples=config.steps * config.samples_per_step,
    )


def fail(config: RunConfig) -> None:
    start(config).write("error", rank=1, message="RuntimeError: boom")
    sys.exit(1)


def crash(config: RunConfig) -> None:
    print(
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n"
        "mpirun: a rank exited",
        flush=True,
    )
    sys.exit(1)


def refuse(config: RunConfig) -> None:
    """What `python -m bench` does with wrong input."""
    print("error: model='resnet51' is unknown", flush=True)
    sys.exit(2)


def refuse_under_srun(config: RunConfig) -> None:
    """The same where srun ends another rank and tells of that one alone."""
    print("error: model='resnet51' is unknown")
    print("srun: error: r1: task 0: Exited with exit code 2", flush=True)
    sys.exit(143)


def hang(config: RunConfig) -> None:
    start(config)
    time.sleep(60)


def hang_early(config: RunConfig) -> None:
    print("importing", flush=True)
    time.sleep(60)


def name_signals(config: RunConfig) -> None:
    """Hang until stopped, then name the signals that came: mpirun ends its ranks at once on a
    second one.

    `timeout` without --foreground signals twice, and gives itself away by a SIGCONT.
    """
    seen: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        signal.signal(number, lambda number, _: seen.append(signal.Signals(number).name))
    start(config)
    while not seen:
        time.sleep(0.01)
    time.sleep(0.2)
    print(*seen, flush=True)
    sys.exit(1)


def torn(config: RunConfig) -> None:
    """Killed in the middle of writing a line."""
    start(config)
    assert config.log_path is not None
    with config.log_path.open("a") as file:
        file.write('{"event": "steps", "seco')
    sys.exit(137)


def orphan(config: RunConfig) -> None:
    """Complete, but leave a process behind as a killed mpirun does:
    in a process group of its own.
    """
    child = subprocess.Popen(["sleep", "900"], process_group=0)
    print(f"left {child.pid}", flush=True)
    complete(config)


def litter(config: RunConfig) -> None:
    """Leave a temporary folder behind, as data workers do where mpirun kills all that would remove
    it.
    """
    print(f"left {tempfile.mkdtemp(prefix='pymp-')}", flush=True)
    complete(config)


def out_of_memory(config: RunConfig) -> None:
    """What is left of a rank that the kernel killed for its cgroup under srun, after more errors
    than anybody keeps.
    """
    start(config)
    print(*(f"error: {n}" for n in range(1000)), sep="\n")
    print(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have "
        "been OOM Killed."
    )
    print("srun: error: r2: task 1: Out Of Memory", flush=True)
    sys.exit(137)


def trip_over_a_node(config: RunConfig) -> None:
    """The last host of the step dies, and is back for the next one."""
    start(config).write("error", rank=0, message="RuntimeError: Connection closed by peer")
    print(f"srun: error: Node failure on {_last_host()}", flush=True)
    sys.exit(1)


def _last_host() -> str:
    return next(
        (word.split("=")[1].split(",")[-1] for word in sys.argv if word.startswith("--nodelist=")),
        "r2",
    )


def babble(config: RunConfig) -> None:
    """Print what breaks naive JSON, and leave with 3."""
    sys.stdout.buffer.write(
        b'50%\rerror: "a" \\ %s\t\xff\x00\x1b[31m'
        + "é\n".encode()
        + b"x" * 10_000
        + b"\n \n$(last) 'line'\n"
    )
    sys.exit(3)


def silent(config: RunConfig) -> None:
    """A launcher that could not start its ranks, and says that all is well."""


def another_world(config: RunConfig) -> None:
    """Refused by the bench itself: as if the launcher had started one rank more than was asked
    for.
    """
    argv = config.to_argv()
    launcher = {
        f"OMPI_COMM_WORLD_{name}": str(config.world_size + 1) for name in ("SIZE", "LOCAL_SIZE")
    }
    launcher |= {f"OMPI_COMM_WORLD_{name}": "0" for name in ("RANK", "LOCAL_RANK")}
    sys.exit(
        subprocess.run(
            [sys.executable, "-m", "bench", *argv], env={**os.environ, **launcher}
        ).returncode
    )


def noisy(config: RunConfig) -> None:
    """Two blocks in which Horovod takes twice as long, two in which DDP does, whoever is first."""
    slow = "horovod" if (config.block or 0) % 4 < 2 else "ddp"
    complete(config, step_s=0.5 if config.backend == slow else 0.25)


def slow(config: RunConfig) -> None:
    time.sleep(1)
    complete(config)


def fill_the_disk(config: RunConfig) -> None:
    """Take all room beside the log before it is complete, as a data set or a core file would."""
    log = start(config)
    assert config.log_path is not None
    with (config.log_path.parent / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(512)):
                pass
        except OSError:
            print("filled", flush=True)
    log.write("steps", phase="window", index=0, seconds=[[0.25] * 1000])


BEHAVIOURS: dict[str, Callable[[RunConfig], None]] = {
    "ok": complete,
    "fail": fail,
    "crash": crash,
    "refuse": refuse,
    "refuse under srun": refuse_under_srun,
    "hang": hang,
    "hang early": hang_early,
    "name signals": name_signals,
    "torn": torn,
    "orphan": orphan,
    "slow": slow,
    "noisy": noisy,
    "litter": litter,
    "out of memory": out_of_memory,
    "trip over a node": trip_over_a_node,
    "babble": babble,
    "fill the disk": fill_the_disk,
    "silent": silent,
    "another world": another_world,
}


def environment(folder: Path, behaviours: dict[int, str] | None = None) -> dict[str, str]:
    """Environment in which job scripts start this file instead of mpirun."""
    command = folder / "stand-in-mpirun"
    if not command.exists():  # a job may be starting it: a rewrite would hand it half a file
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.slurm.stand_in "$@"\n')
        command.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "MPIRUN": str(command),
        "STAND_IN": json.dumps(behaviours or {}),
    }


def main(argv: list[str]) -> None:
    print("stdin", Path("/proc/self/fd/0").readlink())
    print(
        "mpirun",
        *argv[: argv.index("bench") + 1],
        *(f"{name}={os.environ.get(name)}" for name in SHOWN),
        flush=True,
    )
    if argv[argv.index("bench") + 1] == "doctor":
        print("doctor", *argv[argv.index("doctor") + 1 :])
        if (failure := os.environ.get("STAND_IN_DOCTOR", "")) != "":
            print(f"failure  world: {failure}")
            sys.exit(1)
        print("-- 1 ok, 0 warning, 0 failure")
        return
    config = parse_argv(argv[argv.index("bench") + 1 :])
    BEHAVIOURS[json.loads(os.environ["STAND_IN"]).get(str(config.position), "ok")](config)


if __name__ == "__main__":
    main(sys.argv[1:])
