#!/bin/bash
#
# Study 'apart-quiet-gloo' on this machine (site 'local'; not run yet):
# 4 runs.
# Do turns tell of gloo what separate launches tell?
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
seed = 1210392316  # drawn at the first run
name = "apart-quiet-gloo"
question = "Do turns tell of gloo what separate launches tell?"
cells = ["ddp/gloo", "horovod/gloo"]
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6
max_blocks = 20
margin = 0.02
time_limit_s = 180
expected_run_s = 18
turns = false

[weak]
batch_per_rank = 4

[run]
model = "resnet50"
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 15
windows = 20
lead_in_steps = 1
steps_per_window = 3
max_lr = 0.001
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study apart-quiet-gloo
  --study-sha256 5e35273de22d03c7dfe7027f1ed1d5cfb8cb7578d241089294da67abb730ea06
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
  --study-dir=results/spread/apart-quiet-gloo
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 4: one randomised pass, every run with seed 1210392320
run b04-00-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 1210392320 --block 4 --position 0 --curves weak
run b04-01-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 1210392320 --block 4 --position 1 --curves weak

# Block 5: one randomised pass, every run with seed 1210392321
run b05-00-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 1210392321 --block 5 --position 0 --curves weak
run b05-01-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 1210392321 --block 5 --position 1 --curves weak
END_OF_RUNS
