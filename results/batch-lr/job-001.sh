#!/bin/bash
#
# Study 'batch-lr' on this machine (site 'local'; not run yet):
# 18 runs.
# How does the accuracy of every epoch depend on the batch and the learning rate, and does the framework matter?
#
# Written by `python -m slurm`; read it, edit it, run it by hand from the repository root: bash THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under mpirun, one log. Delete or
# edit lines as you like. A run whose log exists is not started again. A failed run does not stop the others, unless its
# input was wrong. What happens around the runs is slurm/driver.
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
seed = 423640888  # drawn at the first run
# Accuracy epoch by epoch for batch and learning rate: 18 runs of three trainings, about four minutes on two cores.
name = "batch-lr"
question = "How does the accuracy of every epoch depend on the batch and the learning rate, and does the framework matter?"

cells = ["ddp/mpi", "horovod/mpi"]
settings = "shipped"                           # each framework's own defaults
scaling = ["batch"]
blocks = 1
margin = 0.02
time_limit_s = 300
expected_run_s = 12                            # on two cores; for an estimate before the first run has ended

[batch]
world_sizes = [2]
batch_per_rank = [8, 16, 32]

[run]
model = "mlp"
dataset = "digits"                             # a fifth is held out
image_size = 8
threads = 1
warmup_steps = 10
windows = 4
steps_per_window = 5
epochs = 10
trainings = 3

[variants.low]
base_lr = 0.05

[variants.usual]
base_lr = 0.2

[variants.high]
base_lr = 0.8
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study batch-lr
  --study-sha256 9ca37efcf2b54121bc5a9f6189fadedc3e2467902bf4c47e1451cf699b199973
  --model mlp
  --dataset digits
  --image-size 8
  --threads 1
  --warmup-steps 10
  --windows 4
  --steps-per-window 5
  --epochs 10
  --trainings 3
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/batch-lr
  --study="$STUDY"
  --limit-s=300 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 423640888
run b00-00-horovod-mpi-w2-b32-usual 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 0 --curves batch --base-lr 0.2
run b00-01-ddp-mpi-w2-b32-usual 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 1 --curves batch --base-lr 0.2
run b00-02-ddp-mpi-w2-b32-low 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 2 --curves batch --base-lr 0.05
run b00-03-horovod-mpi-w2-b32-low 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 3 --curves batch --base-lr 0.05
run b00-04-horovod-mpi-w2-b32-high 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 4 --curves batch --base-lr 0.8
run b00-05-ddp-mpi-w2-b32-high 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 423640888 --block 0 --position 5 --curves batch --base-lr 0.8
run b00-06-horovod-mpi-w2-b8-high 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 6 --curves batch --base-lr 0.8
run b00-07-ddp-mpi-w2-b8-high 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 7 --curves batch --base-lr 0.8
run b00-08-horovod-mpi-w2-b8-low 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 8 --curves batch --base-lr 0.05
run b00-09-ddp-mpi-w2-b8-low 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 9 --curves batch --base-lr 0.05
run b00-10-horovod-mpi-w2-b8-usual 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 10 --curves batch --base-lr 0.2
run b00-11-ddp-mpi-w2-b8-usual 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 423640888 --block 0 --position 11 --curves batch --base-lr 0.2
run b00-12-ddp-mpi-w2-b16-high 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 12 --curves batch --base-lr 0.8
run b00-13-horovod-mpi-w2-b16-high 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 13 --curves batch --base-lr 0.8
run b00-14-ddp-mpi-w2-b16-usual 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 14 --curves batch --base-lr 0.2
run b00-15-horovod-mpi-w2-b16-usual 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 15 --curves batch --base-lr 0.2
run b00-16-horovod-mpi-w2-b16-low 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 16 --curves batch --base-lr 0.05
run b00-17-ddp-mpi-w2-b16-low 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 423640888 --block 0 --position 17 --curves batch --base-lr 0.05
END_OF_RUNS
