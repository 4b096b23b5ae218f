#!/bin/bash
#
# Study 'aa-18' on this machine (site 'local'; not run yet):
# 12 runs.
# Does the instrument find a difference between DDP and DDP, within one percent?
#
# Written by `python -m slurm`; read it, edit it, run it by hand from the repository root: bash THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under mpirun, one log. Runs below
# `turns N` are started together and take turns, window by window; where memory has no room for all, those at positions
# A and B stay together where `A+B` says so. Runs below `apart N REASON` are started one by one. Edit or delete lines as
# you like. A run whose log exists is not started again. A failed run does not stop other launches, unless its input was wrong.
# Ctrl-C or SIGTERM ends the current run, records that, and stops; the same command goes on with the next run.
# Other programs than those found: PYTHON=... MPIRUN=... bash THIS_FILE

# What the site needs before Python
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

[ -f slurm/driver/__main__.py ] || { echo "error: no slurm/ in $PWD; run this script from the repository root" >&2; exit 2; }
command -v "$PYTHON" >/dev/null || { echo "error: $PYTHON is not found; run 'make setup' or say where it is: PYTHON=... MPIRUN=..." >&2; exit 2; }

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned blocks from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
# One cell under two names, for the instrument itself: sixteen launches, about twelve minutes on two cores.
name = "aa-18"
question = "Does the instrument find a difference between DDP and DDP, within one percent?"

cells = ["ddp/mpi", "ddp/mpi@again"]           # the same cell, listed again as an arm of its own name
reference = "ddp/mpi"
candidate = "ddp/mpi@again"
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                    # one look: the interval is as narrow as sixteen launches make it
max_blocks = 12
margin = 0.05
time_limit_s = 180
expected_run_s = 10                            # on two cores
seed = 18000

[weak]
batch_per_rank = 4                             # all as in the study local, of which this is the test

[run]
model = "resnet18"
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 12
windows = 10
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 3
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study aa-18
  --study-sha256 afed558725bd40c749dd5e058b197c188696f7c239ad6703a89908aaae1a596f
  --model resnet18
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 12
  --windows 10
  --lead-in-steps 1
  --steps-per-window 3
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/repeats/aa-18
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 18000
turns 2 0+1
run b00-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18000 --block 0 --position 0 --curves weak
run b00-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18000 --block 0 --position 1 --curves weak

# Block 1: one randomised pass, every run with seed 18001
turns 2 1+0
run b01-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18001 --block 1 --position 0 --curves weak
run b01-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18001 --block 1 --position 1 --curves weak

# Block 2: one randomised pass, every run with seed 18002
turns 2 0+1
run b02-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18002 --block 2 --position 0 --curves weak
run b02-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18002 --block 2 --position 1 --curves weak

# Block 3: one randomised pass, every run with seed 18003
turns 2 1+0
run b03-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18003 --block 3 --position 0 --curves weak
run b03-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18003 --block 3 --position 1 --curves weak

# Block 4: one randomised pass, every run with seed 18004
turns 2 1+0
run b04-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18004 --block 4 --position 0 --curves weak
run b04-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18004 --block 4 --position 1 --curves weak

# Block 5: one randomised pass, every run with seed 18005
turns 2 0+1
run b05-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 18005 --block 5 --position 0 --curves weak
run b05-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 18005 --block 5 --position 1 --curves weak
END_OF_RUNS
