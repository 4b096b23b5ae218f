#!/bin/bash
#
# Study 'handwritten-emulated' on this machine (site 'local'; not run yet):
# 10 runs.
# How far is hand-written data parallelism over MPI from Horovod and DDP at four and eight ranks, and what do buckets and overlap gain, when accelerators compute?
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
seed = 68702478  # drawn at the first run
# The same with accelerators that compute, at more ranks than this machine has cores: 60 runs and more until it is settled, 45 minutes and more on two cores.
# The forward and backward passes sleep as an accelerator's would take; exchange and optimiser are real.
name = "handwritten-emulated"
question = "How far is hand-written data parallelism over MPI from Horovod and DDP at four and eight ranks, and what do buckets and overlap gain, when accelerators compute?"

cells = ["ddp/mpi", "horovod/mpi", "handwritten/mpi", "handwritten/mpi@bucketed", "handwritten/mpi@naive"]
reference = "horovod/mpi"
candidate = "handwritten/mpi"
settings = "shipped"                           # each framework's own defaults
scaling = ["weak"]
world_sizes = [4, 8]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 240
expected_run_s = 40                            # on two cores; for an estimate before the first run has ended

[weak]
batch_per_rank = 2048                          # 0.92 s of compute in a step, as in the study emulated

[run]
model = "resnet50"
image_size = 32                                # the timeline's
emulate = "bench/instrument/timelines/resnet50-p100-32px.json"
threads = 1
warmup_steps = 4
windows = 6
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 2
max_lr = 0.001                                 # nothing is learned from gradients that are a pattern

[arms.bucketed]
overlap = "off"                                # DDP's buckets of 25 MiB, one after the other after the backward pass
bucket_mib = 25.0

[arms.naive]
overlap = "off"                                # an all-reduce of each parameter: what everybody writes first
bucket_mib = 0.0
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study handwritten-emulated
  --study-sha256 2855c4ecc0510ee45a78f66315579a61519614d7a621120d6ef2b3afe2c46bbf
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
  --study-dir=results/handwritten-emulated
  --study="$STUDY"
  --limit-s=240 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 68702478
turns 5 8+5 5+7 5+6
run b00-00-ddp-mpi-w8-b2048 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 0 --curves weak --overlap on
run b00-05-handwritten-mpi-w8-b2048 8 --backend handwritten --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 5 --curves weak --overlap on
run b00-06-handwritten-mpi-naive-w8-b2048 8 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 2048 --seed 68702478 --block 0 --position 6 --curves weak --overlap off --bucket-mib 0.0
run b00-07-handwritten-mpi-bucketed-w8-b2048 8 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 2048 --seed 68702478 --block 0 --position 7 --curves weak --overlap off --bucket-mib 25.0
run b00-08-horovod-mpi-w8-b2048 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 8 --curves weak --overlap on
turns 5 3+2 2+1 2+4
run b00-01-handwritten-mpi-bucketed-w4-b2048 4 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 2048 --seed 68702478 --block 0 --position 1 --curves weak --overlap off --bucket-mib 25.0
run b00-02-handwritten-mpi-w4-b2048 4 --backend handwritten --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 2 --curves weak --overlap on
run b00-03-horovod-mpi-w4-b2048 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 3 --curves weak --overlap on
run b00-04-handwritten-mpi-naive-w4-b2048 4 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 2048 --seed 68702478 --block 0 --position 4 --curves weak --overlap off --bucket-mib 0.0
run b00-09-ddp-mpi-w4-b2048 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 68702478 --block 0 --position 9 --curves weak --overlap on
END_OF_RUNS
