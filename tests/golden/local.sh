#!/bin/bash
#
# Study 'smoke' on this machine (site 'local'; not verified):
# 10 runs.
# Does a job at this site do all it should, from the look at the launch to complete logs?
#
# Written by `python -m slurm`; read it, edit it, run it by hand from the repository root: bash THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under mpirun, one log. Runs below
# `turns N` are started together and take turns, window by window. Runs below `apart N REASON` are started one by one.
# Edit or delete lines as you like. A run whose log exists is not started again. A failed run does not stop other launches,
# unless its input was wrong.
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

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned launches from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/mpi", "horovod/mpi"]
scaling = ["weak"]
world_sizes = [1, 2]
launches = 2
max_launches = 20
turns = true
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "this machine"

[weak]
batch_per_rank = 8

[run]
model = "resnet18"
dataset = "digits"
image_size = 32
warmup_steps = 5
windows = 2
lead_in_steps = 1
steps_per_window = 5
max_lr = 0.001
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study smoke
  --study-sha256 53a39c6109f2779d6ec6bcb4062744a78ddca888e565da7ff206650d6ae92bb9
  --model resnet18
  --dataset digits
  --image-size 32
  --warmup-steps 5
  --windows 2
  --lead-in-steps 1
  --steps-per-window 5
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/smoke
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Launch 0: one randomised pass, every run with seed 0
turns 3
run launch00-00-horovod-mpi-w1-b8 1 --backend horovod --transport mpi --batch-per-rank 8 --seed 0 --launch 0 --position 0 --curves weak
run launch00-01-ddp-mpi-w1-b8 1 --backend ddp --transport mpi --batch-per-rank 8 --seed 0 --launch 0 --position 1 --curves weak
run launch00-02-single-w1-b8 1 --backend single --transport none --batch-per-rank 8 --seed 0 --launch 0 --position 2 --curves weak
turns 2
run launch00-03-ddp-mpi-w2-b8 2 --backend ddp --transport mpi --batch-per-rank 8 --seed 0 --launch 0 --position 3 --curves weak
run launch00-04-horovod-mpi-w2-b8 2 --backend horovod --transport mpi --batch-per-rank 8 --seed 0 --launch 0 --position 4 --curves weak

# Launch 1: one randomised pass, every run with seed 1
turns 3
run launch01-00-ddp-mpi-w1-b8 1 --backend ddp --transport mpi --batch-per-rank 8 --seed 1 --launch 1 --position 0 --curves weak
run launch01-01-horovod-mpi-w1-b8 1 --backend horovod --transport mpi --batch-per-rank 8 --seed 1 --launch 1 --position 1 --curves weak
run launch01-04-single-w1-b8 1 --backend single --transport none --batch-per-rank 8 --seed 1 --launch 1 --position 4 --curves weak
turns 2
run launch01-02-horovod-mpi-w2-b8 2 --backend horovod --transport mpi --batch-per-rank 8 --seed 1 --launch 1 --position 2 --curves weak
run launch01-03-ddp-mpi-w2-b8 2 --backend ddp --transport mpi --batch-per-rank 8 --seed 1 --launch 1 --position 3 --curves weak
END_OF_RUNS
