#!/bin/bash
#
# Study 'turns-quiet-emulated' on this machine (site 'local'; not run yet):
# 4 runs.
# How do the exchanges of DDP and Horovod scale from one to eight ranks that share a machine, when accelerators compute?
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
seed = 1004343172  # drawn at the first run
name = "turns-quiet-emulated"
question = "How do the exchanges of DDP and Horovod scale from one to eight ranks that share a machine, when accelerators compute?"
cells = ["ddp/mpi", "horovod/mpi"]
settings = "shipped"
scaling = ["weak"]
world_sizes = [8]
blocks = 6
margin = 0.02
time_limit_s = 240
expected_run_s = 30
turns = true

[weak]
batch_per_rank = 2048

[run]
model = "resnet50"
image_size = 32
emulate = "bench/instrument/timelines/resnet50-p100-32px.json"
threads = 1
warmup_steps = 4
windows = 6
lead_in_steps = 1
steps_per_window = 2
max_lr = 0.001
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study turns-quiet-emulated
  --study-sha256 b51c5bb6f93cc6f090bf56746838a4f6bf63ecce29bef474edf390f7cc69cac2
  --model resnet50
  --image-size 32
  --emulate bench/instrument/timelines/resnet50-p100-32px.json
  --threads 1
  --warmup-steps 4
  --windows 6
  --lead-in-steps 1
  --steps-per-window 2
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/spread/turns-quiet-emulated
  --study="$STUDY"
  --limit-s=240 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 6: one randomised pass, every run with seed 1004343178
turns 2 1+0
run b06-00-horovod-mpi-w8-b2048 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1004343178 --block 6 --position 0 --curves weak
run b06-01-ddp-mpi-w8-b2048 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1004343178 --block 6 --position 1 --curves weak

# Block 7: one randomised pass, every run with seed 1004343179
turns 2 0+1
run b07-00-ddp-mpi-w8-b2048 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1004343179 --block 7 --position 0 --curves weak
run b07-01-horovod-mpi-w8-b2048 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1004343179 --block 7 --position 1 --curves weak
END_OF_RUNS
