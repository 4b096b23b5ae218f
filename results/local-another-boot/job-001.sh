#!/bin/bash
#
# Study 'local' on this machine (site 'local'; not run yet):
# 18 runs.
# On one machine and over one wire, MPI, does it matter whether DDP or Horovod averages the gradients?
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
seed = 390784520  # drawn at the first run
# The first look, on one machine: launches of two ranks until it is settled, about six minutes on two cores for the first six.
name = "local"
question = "On one machine and over one wire, MPI, does it matter whether DDP or Horovod averages the gradients?"

cells = ["single", "ddp/mpi", "horovod/mpi"]   # single is one rank, for the efficiency; both frameworks travel over MPI
settings = "shipped"                           # each framework's own defaults
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the first look: the fewest that allow a verdict
max_blocks = 20                                # the last: two more at a time until it is settled
margin = 0.02                                  # differences below 2 % count as none
time_limit_s = 180
expected_run_s = 18                            # a third of a launch on two cores; for an estimate before the first has ended

[weak]
batch_per_rank = 4                             # the smaller the batch, the larger the share of communication

[run]
model = "resnet50"
dataset = "digits"                             # real images that need no download
image_size = 32
threads = 1
warmup_steps = 15
windows = 20                                   # short ones: the frameworks take turns, so both meet the same minutes
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 3
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study local
  --study-sha256 0f1258f8d7fc4c605c2342526efdc54ac580ff8c30f5e1d3e83c8abedd3aa23b
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
  --study-dir=results/mine/local
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 390784520
turns 3 0+1
run b00-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784520 --block 0 --position 0 --curves weak
run b00-01-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784520 --block 0 --position 1 --curves weak
run b00-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784520 --block 0 --position 2 --curves weak

# Block 1: one randomised pass, every run with seed 390784521
turns 3 1+0
run b01-00-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784521 --block 1 --position 0 --curves weak
run b01-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784521 --block 1 --position 1 --curves weak
run b01-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784521 --block 1 --position 2 --curves weak

# Block 2: one randomised pass, every run with seed 390784522
turns 3 1+0
run b02-00-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784522 --block 2 --position 0 --curves weak
run b02-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784522 --block 2 --position 1 --curves weak
run b02-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784522 --block 2 --position 2 --curves weak

# Block 3: one randomised pass, every run with seed 390784523
turns 3 0+1
run b03-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784523 --block 3 --position 0 --curves weak
run b03-01-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784523 --block 3 --position 1 --curves weak
run b03-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784523 --block 3 --position 2 --curves weak

# Block 4: one randomised pass, every run with seed 390784524
turns 3 2+1
run b04-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784524 --block 4 --position 0 --curves weak
run b04-01-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784524 --block 4 --position 1 --curves weak
run b04-02-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784524 --block 4 --position 2 --curves weak

# Block 5: one randomised pass, every run with seed 390784525
turns 3 1+2
run b05-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 390784525 --block 5 --position 0 --curves weak
run b05-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 390784525 --block 5 --position 1 --curves weak
run b05-02-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 390784525 --block 5 --position 2 --curves weak
END_OF_RUNS
