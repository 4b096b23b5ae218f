"""Stands in for mpirun or srun: writes the log of the run it is asked to start without training, or
goes wrong in a chosen way.

STAND_IN is JSON: what the run at each position of its launch does; anything not named is "ok".
`install` writes a Slurm of shell scripts: enough of its commands for the tests, no daemons.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.config import RunConfig, parse_argv
from bench.record import CHECKS, SCHEMA, RunLog
from bench.tools.doctor import checks

SHOWN = ("OMPI_MCA_mpi_yield_when_idle", "OMPI_ALLOW_RUN_AS_ROOT")


def start(config: RunConfig) -> RunLog:
    """Write a log as far as its first event."""
    log = RunLog(config.log_path)
    here = [{"rank": rank, "hostname": socket.gethostname()} for rank in range(config.world_size)]
    host = {"ranks": here}
    log.write("start", schema=SCHEMA, config=config.model_dump(mode="json"), host=host, workload={})
    return log


def complete(config: RunConfig, step_s: float = 0.25) -> None:
    """Write the log of a run that did all it was asked to do."""
    log, ranks, steps = start(config), config.world_size, config.steps_per_window
    for index in range(config.windows):
        for phase, count in (("lead_in", config.lead_in_steps), ("window", steps)):
            if count:
                log.write("steps", phase=phase, index=index, seconds=[[step_s] * count] * ranks)
        window = {"steps": steps, "seconds": step_s * steps, "input_seconds": [0.0] * ranks}
        log.write("window", index=index, **window)
    samples = config.steps * config.samples_per_step
    log.write("end", status="ok", checks=dict.fromkeys(CHECKS, True), samples=samples)


def noisy(config: RunConfig) -> None:
    """Complete a run: in two launches Horovod takes twice as long, in two DDP, whoever is first."""
    slow = "horovod" if (config.launch or 0) % 4 < 2 else "ddp"
    complete(config, step_s=0.5 if config.backend == slow else 0.25)


def fail(config: RunConfig) -> None:
    start(config).write("error", rank=1, message="RuntimeError: boom")
    sys.exit(1)


def say(code: int, *lines: object) -> None:
    """Print and leave."""
    print(*lines, sep="\n", flush=True)
    sys.exit(code)


def out_of_memory(config: RunConfig) -> None:
    """Leave what remains of a rank that the kernel killed for its cgroup under srun, after more
    errors than anybody keeps.
    """
    start(config)
    killed = "Some of the step tasks have been OOM Killed."
    event = f"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. {killed}"
    say(137, *(f"error: {n}" for n in range(1000)), event, "srun: error: r2: task 1: Out Of Memory")


def trip_over_a_node(config: RunConfig) -> None:
    """Lose the last host of the step, which is back for the next one."""
    start(config).write("error", rank=0, message="RuntimeError: Connection closed by peer")
    say(1, "srun: error: Node failure on r2")


def babble(config: RunConfig) -> None:
    """Print what breaks naive JSON, and leave with 3."""
    odd = b'50%\rerror: "a" \\ %s\t\xff\x00\x1b[31m\xc3\xa9\n'
    sys.stdout.buffer.write(odd + b"x" * 10_000 + b"\n \n$(last) 'line'\n")
    sys.exit(3)


def another_world(config: RunConfig) -> None:
    """Let the bench itself refuse, as if the launcher had started one rank more than asked for."""
    ranks = str(config.world_size + 1)
    world = {"SIZE": ranks, "LOCAL_SIZE": ranks, "RANK": "0", "LOCAL_RANK": "0"}
    env = os.environ | {f"OMPI_COMM_WORLD_{name}": value for name, value in world.items()}
    command = [sys.executable, "-m", "bench", *config.to_argv()]
    sys.exit(subprocess.run(command, env=env, check=False).returncode)


def behave(how: str, config: RunConfig) -> None:
    match how:
        case "ok":
            complete(config)
        case "fail":
            fail(config)
        case "crash":
            why = "ModuleNotFoundError: No module named 'torch'"
            say(1, "Traceback (most recent call last):", why, "mpirun: a rank exited")
        case "refuse":  # what `python -m bench` does with wrong input
            say(2, "error: model='resnet51' is unknown")
        case "refuse under srun":  # where srun ends another rank and tells of that one alone
            told = "srun: error: r1: task 0: Exited with exit code 2"
            say(143, "error: model='resnet51' is unknown", told)
        case "hang":
            start(config)
            time.sleep(60)
        case "held" if config.log_path is not None:  # until a test has seen what it waits for
            while not config.log_path.with_name("go").exists():
                time.sleep(0.02)
            complete(config)
        case "litter":  # as data workers do where mpirun kills all that would remove it
            tempfile.mkdtemp(prefix="pymp-")
            complete(config)
        case "silent":  # a launcher that could not start its ranks, and says that all is well
            pass
        case _:
            globals()[how.replace(" ", "_")](config)


def environment(folder: Path, behaviours: dict[int, str] | None = None) -> dict[str, str]:
    """Make the environment in which job scripts start this file instead of mpirun."""
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


COMMANDS = {
    "srun": 'exec "{python}" -m tests.slurm.stand_in "$@"\n',
    "ibrun": 'exec "{python}" -m tests.slurm.stand_in "$@"\n',
    "scontrol": (
        'if [ "$1 $2" = "show hostnames" ]; then printf "%s\\n" $FAKE_HOSTS; else echo "$@" '
        '>>"{folder}/scontrol.said"; fi\n'
    ),
    # a job of the name in the script, pending, with the next number; notes how it was called
    "sbatch": (
        'env >"{folder}/sbatch.env"; echo "$@" >>"{folder}/sbatch.said"\n'
        'readlink /proc/$$/fd/* >"{folder}/sbatch.files"\n'
        'n=$(($(cat "{folder}/queue" "{folder}/gone" 2>/dev/null | wc -l) + 101))\n'
        "for script; do :; done\n"
        'name=$(sed -n "s/^#SBATCH --job-name=//p" "$script")\n'
        'echo "$n|$name|PENDING|$script" >>"{folder}/queue"; echo "$n;cluster"\n'
    ),
    "squeue": '[ -e "{folder}/squeue.down" ] && exit 1\ncat "{folder}/queue" 2>/dev/null\nexit 0\n',
    "sacct": 'cat "{folder}/accounts" || exit 1\n',  # without it, accounting is disabled
    "scancel": 'echo "$@" >>"{folder}/scancel.said"\n',
}


def install(folder: Path) -> Path:
    """Write the commands into folder/bin, which is to stand first on PATH."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, command in COMMANDS.items():
        path = bin_folder / name
        path.write_text(f"#!/bin/bash\n{command.format(python=sys.executable, folder=folder)}")
        path.chmod(0o755)
    return bin_folder


def main(argv: list[str]) -> None:
    print("stdin", Path("/proc/self/fd/0").readlink())
    at = argv.index("bench") + 1
    shown = (f"{name}={os.environ.get(name)}" for name in SHOWN)
    print("mpirun", *argv[:at], *shown, flush=True)
    if argv[at] == "doctor":
        print("doctor", *argv[at + 1 :])
        backend, transport = argv[argv.index("--backend") + 1], argv[argv.index("--transport") + 1]
        print(checks.Finding(f"{backend}/{transport}", "ok", "parity holds").line())
        return
    config = parse_argv(argv[at:])
    behave(json.loads(os.environ["STAND_IN"]).get(str(config.position), "ok"), config)


if __name__ == "__main__":
    main(sys.argv[1:])
