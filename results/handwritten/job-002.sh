#!/bin/bash
#
# Study 'handwritten' on this machine (site 'local'; not run yet):
# 20 runs.
# How far is hand-written data parallelism over MPI from Horovod and DDP, and what do buckets and overlap gain?
#
# Written by `python -m slurm`; read it, edit it, run it by hand from the repository root: bash THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under mpirun, one log. The runs
# below a line `turns N` are started together: they take turns, window by window, while the others are stopped. Those
# below `apart N REASON` are started one by one. Delete or edit lines as you like. A run whose log exists is not started
# again. A failed run does not stop other launches, unless its input was wrong. What happens around them is slurm/driver.
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
seed = 1282652735  # drawn at the first run
# What a framework adds to the MPI beneath it: 60 runs and more until it is settled, about 30 minutes on two cores.
name = "handwritten"
question = "How far is hand-written data parallelism over MPI from Horovod and DDP, and what do buckets and overlap gain?"

cells = ["ddp/mpi", "horovod/mpi", "handwritten/mpi", "handwritten/mpi@bucketed", "handwritten/mpi@naive"]
reference = "horovod/mpi"
candidate = "handwritten/mpi"
settings = "shipped"                           # each framework's own defaults
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 180
expected_run_s = 27                            # on two cores; for an estimate before the first run has ended

[weak]
batch_per_rank = 4                             # as in the study local

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

[arms.bucketed]
overlap = "off"                                # DDP's buckets of 25 MiB, one after the other after the backward pass
bucket_mib = 25.0

[arms.naive]
overlap = "off"                                # an all-reduce of each parameter: what everybody writes first
bucket_mib = 0.0

[variants.timed]

[variants.observed]
observe = "breakdown"                          # where the time goes; its speed is not counted
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study handwritten
  --study-sha256 f86e0ac1c46abb6f24d5894acc71cd5bb315e19ccd6571d493489776400eb40a
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
  --study-dir=results/handwritten
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 6: one randomised pass, every run with seed 1282652741
turns 10
run b06-00-handwritten-mpi-naive-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --arm naive --variant observed --batch-per-rank 4 --seed 1282652741 --block 6 --position 0 --curves weak --observe breakdown --overlap off --bucket-mib 0.0
run b06-01-handwritten-mpi-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652741 --block 6 --position 1 --curves weak --observe breakdown --overlap on
run b06-02-horovod-mpi-w2-b4-observed 2 --backend horovod --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652741 --block 6 --position 2 --curves weak --observe breakdown --overlap on
run b06-03-handwritten-mpi-bucketed-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --variant observed --batch-per-rank 4 --seed 1282652741 --block 6 --position 3 --curves weak --observe breakdown --overlap off --bucket-mib 25.0
run b06-04-handwritten-mpi-bucketed-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --variant timed --batch-per-rank 4 --seed 1282652741 --block 6 --position 4 --curves weak --observe nothing --overlap off --bucket-mib 25.0
run b06-05-handwritten-mpi-naive-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --arm naive --variant timed --batch-per-rank 4 --seed 1282652741 --block 6 --position 5 --curves weak --observe nothing --overlap off --bucket-mib 0.0
run b06-06-horovod-mpi-w2-b4-timed 2 --backend horovod --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652741 --block 6 --position 6 --curves weak --observe nothing --overlap on
run b06-07-handwritten-mpi-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652741 --block 6 --position 7 --curves weak --observe nothing --overlap on
run b06-08-ddp-mpi-w2-b4-observed 2 --backend ddp --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652741 --block 6 --position 8 --curves weak --observe breakdown --overlap on
run b06-09-ddp-mpi-w2-b4-timed 2 --backend ddp --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652741 --block 6 --position 9 --curves weak --observe nothing --overlap on

# Block 7: one randomised pass, every run with seed 1282652742
turns 10
run b07-00-handwritten-mpi-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652742 --block 7 --position 0 --curves weak --observe nothing --overlap on
run b07-01-horovod-mpi-w2-b4-timed 2 --backend horovod --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652742 --block 7 --position 1 --curves weak --observe nothing --overlap on
run b07-02-handwritten-mpi-naive-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --arm naive --variant timed --batch-per-rank 4 --seed 1282652742 --block 7 --position 2 --curves weak --observe nothing --overlap off --bucket-mib 0.0
run b07-03-handwritten-mpi-bucketed-w2-b4-timed 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --variant timed --batch-per-rank 4 --seed 1282652742 --block 7 --position 3 --curves weak --observe nothing --overlap off --bucket-mib 25.0
run b07-04-handwritten-mpi-bucketed-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --variant observed --batch-per-rank 4 --seed 1282652742 --block 7 --position 4 --curves weak --observe breakdown --overlap off --bucket-mib 25.0
run b07-05-horovod-mpi-w2-b4-observed 2 --backend horovod --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652742 --block 7 --position 5 --curves weak --observe breakdown --overlap on
run b07-06-handwritten-mpi-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652742 --block 7 --position 6 --curves weak --observe breakdown --overlap on
run b07-07-handwritten-mpi-naive-w2-b4-observed 2 --backend handwritten --transport mpi --settings shipped --arm naive --variant observed --batch-per-rank 4 --seed 1282652742 --block 7 --position 7 --curves weak --observe breakdown --overlap off --bucket-mib 0.0
run b07-08-ddp-mpi-w2-b4-timed 2 --backend ddp --transport mpi --settings shipped --variant timed --batch-per-rank 4 --seed 1282652742 --block 7 --position 8 --curves weak --observe nothing --overlap on
run b07-09-ddp-mpi-w2-b4-observed 2 --backend ddp --transport mpi --settings shipped --variant observed --batch-per-rank 4 --seed 1282652742 --block 7 --position 9 --curves weak --observe breakdown --overlap on
END_OF_RUNS
