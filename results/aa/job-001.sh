#!/bin/bash
#
# Study 'aa' on this machine (site 'local'; not run yet):
# 32 runs.
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
seed = 2107863450  # drawn at the first run
# One cell under two names, for the instrument itself: sixteen launches, about twelve minutes on two cores.
name = "aa"
question = "Does the instrument find a difference between DDP and DDP, within one percent?"

cells = ["ddp/mpi", "ddp/mpi@again"]           # the same cell, listed again as an arm of its own name
reference = "ddp/mpi"
candidate = "ddp/mpi@again"
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 16                                    # one look: the interval is as narrow as sixteen launches make it
max_blocks = 16
margin = 0.01
time_limit_s = 180
expected_run_s = 18                            # on two cores

[weak]
batch_per_rank = 4                             # all as in the study local, of which this is the test

[run]
model = "resnet50"
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 15
windows = 20
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 3
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study aa
  --study-sha256 83e35538fa2a91f5df6ca7a596e797bb731bd5b90275d6b2981bceaf30c07d2d
  --model resnet50
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 15
  --windows 20
  --lead-in-steps 1
  --steps-per-window 3
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/aa
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 2107863450
turns 2 0+1
run b00-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863450 --block 0 --position 0 --curves weak
run b00-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863450 --block 0 --position 1 --curves weak

# Block 1: one randomised pass, every run with seed 2107863451
turns 2 1+0
run b01-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863451 --block 1 --position 0 --curves weak
run b01-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863451 --block 1 --position 1 --curves weak

# Block 2: one randomised pass, every run with seed 2107863452
turns 2 1+0
run b02-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863452 --block 2 --position 0 --curves weak
run b02-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863452 --block 2 --position 1 --curves weak

# Block 3: one randomised pass, every run with seed 2107863453
turns 2 0+1
run b03-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863453 --block 3 --position 0 --curves weak
run b03-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863453 --block 3 --position 1 --curves weak

# Block 4: one randomised pass, every run with seed 2107863454
turns 2 0+1
run b04-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863454 --block 4 --position 0 --curves weak
run b04-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863454 --block 4 --position 1 --curves weak

# Block 5: one randomised pass, every run with seed 2107863455
turns 2 1+0
run b05-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863455 --block 5 --position 0 --curves weak
run b05-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863455 --block 5 --position 1 --curves weak

# Block 6: one randomised pass, every run with seed 2107863456
turns 2 0+1
run b06-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863456 --block 6 --position 0 --curves weak
run b06-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863456 --block 6 --position 1 --curves weak

# Block 7: one randomised pass, every run with seed 2107863457
turns 2 1+0
run b07-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863457 --block 7 --position 0 --curves weak
run b07-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863457 --block 7 --position 1 --curves weak

# Block 8: one randomised pass, every run with seed 2107863458
turns 2 0+1
run b08-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863458 --block 8 --position 0 --curves weak
run b08-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863458 --block 8 --position 1 --curves weak

# Block 9: one randomised pass, every run with seed 2107863459
turns 2 1+0
run b09-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863459 --block 9 --position 0 --curves weak
run b09-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863459 --block 9 --position 1 --curves weak

# Block 10: one randomised pass, every run with seed 2107863460
turns 2 0+1
run b10-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863460 --block 10 --position 0 --curves weak
run b10-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863460 --block 10 --position 1 --curves weak

# Block 11: one randomised pass, every run with seed 2107863461
turns 2 1+0
run b11-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863461 --block 11 --position 0 --curves weak
run b11-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863461 --block 11 --position 1 --curves weak

# Block 12: one randomised pass, every run with seed 2107863462
turns 2 1+0
run b12-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863462 --block 12 --position 0 --curves weak
run b12-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863462 --block 12 --position 1 --curves weak

# Block 13: one randomised pass, every run with seed 2107863463
turns 2 0+1
run b13-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863463 --block 13 --position 0 --curves weak
run b13-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863463 --block 13 --position 1 --curves weak

# Block 14: one randomised pass, every run with seed 2107863464
turns 2 1+0
run b14-00-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863464 --block 14 --position 0 --curves weak
run b14-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863464 --block 14 --position 1 --curves weak

# Block 15: one randomised pass, every run with seed 2107863465
turns 2 0+1
run b15-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2107863465 --block 15 --position 0 --curves weak
run b15-01-ddp-mpi-again-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm again --batch-per-rank 4 --seed 2107863465 --block 15 --position 1 --curves weak
END_OF_RUNS
