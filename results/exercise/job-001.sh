#!/bin/bash
#
# Study 'exercise' on this machine (site 'local'; not run yet):
# 30 runs.
# What do buckets, overlap and a framework gain over an all-reduce of each parameter, on a small perceptron?
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
seed = 1743282558  # drawn at the first run
# For learners (bench/EXERCISE.md): your first data parallelism beside two frameworks. 30 runs, about five minutes on two cores.
name = "exercise"
question = "What do buckets, overlap and a framework gain over an all-reduce of each parameter, on a small perceptron?"

cells = ["ddp/mpi", "horovod/mpi", "handwritten/mpi", "handwritten/mpi@bucketed", "handwritten/mpi@naive"]
reference = "ddp/mpi"
candidate = "handwritten/mpi"
settings = "shipped"                           # each framework's own defaults
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 120
expected_run_s = 8                             # on two cores; for an estimate before the first run has ended

[weak]
batch_per_rank = 64

[run]
model = "mlp"
dataset = "generated"                          # 32 classes of 1,024 numbers each
image_size = 32
threads = 1
warmup_steps = 50
windows = 4
steps_per_window = 50
base_lr = 0.2

[arms.bucketed]
overlap = "off"                                # one message of all gradients here: they fit into a bucket
bucket_mib = 25.0

[arms.naive]
overlap = "off"                                # an all-reduce of each parameter
bucket_mib = 0.0
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study exercise
  --study-sha256 eab232f0223b78527860683dc40e9d74a8015baa14902684662b38a176b1b334
  --model mlp
  --dataset generated
  --image-size 32
  --threads 1
  --warmup-steps 50
  --windows 4
  --steps-per-window 50
  --base-lr 0.2
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/exercise
  --study="$STUDY"
  --limit-s=120 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1743282558
run b00-00-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282558 --block 0 --position 0 --curves weak --overlap on
run b00-01-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282558 --block 0 --position 1 --curves weak --overlap off --bucket-mib 0.0
run b00-02-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282558 --block 0 --position 2 --curves weak --overlap on
run b00-03-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282558 --block 0 --position 3 --curves weak --overlap off --bucket-mib 25.0
run b00-04-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282558 --block 0 --position 4 --curves weak --overlap on

# Block 1: one randomised pass, every run with seed 1743282559
run b01-00-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282559 --block 1 --position 0 --curves weak --overlap on
run b01-01-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282559 --block 1 --position 1 --curves weak --overlap on
run b01-02-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282559 --block 1 --position 2 --curves weak --overlap off --bucket-mib 25.0
run b01-03-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282559 --block 1 --position 3 --curves weak --overlap on
run b01-04-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282559 --block 1 --position 4 --curves weak --overlap off --bucket-mib 0.0

# Block 2: one randomised pass, every run with seed 1743282560
run b02-00-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282560 --block 2 --position 0 --curves weak --overlap off --bucket-mib 0.0
run b02-01-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282560 --block 2 --position 1 --curves weak --overlap on
run b02-02-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282560 --block 2 --position 2 --curves weak --overlap on
run b02-03-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282560 --block 2 --position 3 --curves weak --overlap off --bucket-mib 25.0
run b02-04-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282560 --block 2 --position 4 --curves weak --overlap on

# Block 3: one randomised pass, every run with seed 1743282561
run b03-00-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282561 --block 3 --position 0 --curves weak --overlap on
run b03-01-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282561 --block 3 --position 1 --curves weak --overlap off --bucket-mib 25.0
run b03-02-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282561 --block 3 --position 2 --curves weak --overlap on
run b03-03-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282561 --block 3 --position 3 --curves weak --overlap on
run b03-04-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282561 --block 3 --position 4 --curves weak --overlap off --bucket-mib 0.0

# Block 4: one randomised pass, every run with seed 1743282562
run b04-00-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282562 --block 4 --position 0 --curves weak --overlap off --bucket-mib 25.0
run b04-01-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282562 --block 4 --position 1 --curves weak --overlap off --bucket-mib 0.0
run b04-02-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282562 --block 4 --position 2 --curves weak --overlap on
run b04-03-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282562 --block 4 --position 3 --curves weak --overlap on
run b04-04-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282562 --block 4 --position 4 --curves weak --overlap on

# Block 5: one randomised pass, every run with seed 1743282563
run b05-00-horovod-mpi-w2-b64 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282563 --block 5 --position 0 --curves weak --overlap on
run b05-01-handwritten-mpi-w2-b64 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282563 --block 5 --position 1 --curves weak --overlap on
run b05-02-ddp-mpi-w2-b64 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 64 --seed 1743282563 --block 5 --position 2 --curves weak --overlap on
run b05-03-handwritten-mpi-naive-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm naive --batch-per-rank 64 --seed 1743282563 --block 5 --position 3 --curves weak --overlap off --bucket-mib 0.0
run b05-04-handwritten-mpi-bucketed-w2-b64 2 --backend handwritten --transport mpi --settings shipped --arm bucketed --batch-per-rank 64 --seed 1743282563 --block 5 --position 4 --curves weak --overlap off --bucket-mib 25.0
END_OF_RUNS
