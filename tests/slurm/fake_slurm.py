"""A Slurm of shell scripts: enough of srun, scontrol, sbatch, squeue, sacct and scancel for the
tests, no daemons.
"""

import sys
from pathlib import Path

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
