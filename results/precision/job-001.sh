#!/bin/bash
#
# Study 'precision' on this machine (site 'local'; not run yet):
# 36 runs.
# Does it matter whether DDP or Horovod averages the gradients once ResNet-50 trains in bfloat16?
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
seed = 2139611378  # drawn at the first run
# What bfloat16 gains, and whether it gains the same in both frameworks: 36 runs, about half an hour on two cores that know it.
name = "precision"
question = "Does it matter whether DDP or Horovod averages the gradients once ResNet-50 trains in bfloat16?"

cells = ["ddp/mpi", "horovod/mpi"]
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6
margin = 0.02
time_limit_s = 300
expected_run_s = 52                            # on two cores

[weak]
batch_per_rank = 16

[run]
model = "resnet50"
dataset = "synthetic"
image_size = 112
preprocessing = "outside"                      # the arithmetic alone is the subject
threads = 1
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 3
steps_per_window = 5
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge

# Each variant runs in every cell and every block, and is compared with itself; what it gains over the first is described beside.
[variants.float32]
precision = "float32"

[variants.bf16-mixed]
precision = "bf16-mixed"
memory_format = "channels_last"

[variants.bf16]
precision = "bf16"
memory_format = "channels_last"
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study precision
  --study-sha256 0ee9516c5e8d41a048d9ab1a9f4c55bd249497aa703309007b9fddab4a6a9373
  --model resnet50
  --dataset synthetic
  --image-size 112
  --preprocessing outside
  --threads 1
  --warmup-steps 30
  --windows 3
  --steps-per-window 5
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/precision
  --study="$STUDY"
  --limit-s=300 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 2139611378
run b00-00-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 0 --curves weak --precision bf16 --memory-format channels_last
run b00-01-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 1 --curves weak --precision bf16 --memory-format channels_last
run b00-02-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 2 --curves weak --precision bf16-mixed --memory-format channels_last
run b00-03-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 3 --curves weak --precision bf16-mixed --memory-format channels_last
run b00-04-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 4 --curves weak --precision float32 --memory-format contiguous
run b00-05-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611378 --block 0 --position 5 --curves weak --precision float32 --memory-format contiguous

# Block 1: one randomised pass, every run with seed 2139611379
run b01-00-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 0 --curves weak --precision float32 --memory-format contiguous
run b01-01-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 1 --curves weak --precision float32 --memory-format contiguous
run b01-02-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 2 --curves weak --precision bf16-mixed --memory-format channels_last
run b01-03-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 3 --curves weak --precision bf16-mixed --memory-format channels_last
run b01-04-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 4 --curves weak --precision bf16 --memory-format channels_last
run b01-05-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611379 --block 1 --position 5 --curves weak --precision bf16 --memory-format channels_last

# Block 2: one randomised pass, every run with seed 2139611380
run b02-00-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 0 --curves weak --precision bf16-mixed --memory-format channels_last
run b02-01-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 1 --curves weak --precision bf16-mixed --memory-format channels_last
run b02-02-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 2 --curves weak --precision bf16 --memory-format channels_last
run b02-03-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 3 --curves weak --precision bf16 --memory-format channels_last
run b02-04-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 4 --curves weak --precision float32 --memory-format contiguous
run b02-05-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611380 --block 2 --position 5 --curves weak --precision float32 --memory-format contiguous

# Block 3: one randomised pass, every run with seed 2139611381
run b03-00-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 0 --curves weak --precision float32 --memory-format contiguous
run b03-01-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 1 --curves weak --precision float32 --memory-format contiguous
run b03-02-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 2 --curves weak --precision bf16 --memory-format channels_last
run b03-03-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 3 --curves weak --precision bf16 --memory-format channels_last
run b03-04-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 4 --curves weak --precision bf16-mixed --memory-format channels_last
run b03-05-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611381 --block 3 --position 5 --curves weak --precision bf16-mixed --memory-format channels_last

# Block 4: one randomised pass, every run with seed 2139611382
run b04-00-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 0 --curves weak --precision float32 --memory-format contiguous
run b04-01-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 1 --curves weak --precision float32 --memory-format contiguous
run b04-02-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 2 --curves weak --precision bf16 --memory-format channels_last
run b04-03-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 3 --curves weak --precision bf16 --memory-format channels_last
run b04-04-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 4 --curves weak --precision bf16-mixed --memory-format channels_last
run b04-05-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611382 --block 4 --position 5 --curves weak --precision bf16-mixed --memory-format channels_last

# Block 5: one randomised pass, every run with seed 2139611383
run b05-00-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 0 --curves weak --precision bf16-mixed --memory-format channels_last
run b05-01-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 1 --curves weak --precision bf16-mixed --memory-format channels_last
run b05-02-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 2 --curves weak --precision bf16 --memory-format channels_last
run b05-03-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 3 --curves weak --precision bf16 --memory-format channels_last
run b05-04-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 4 --curves weak --precision float32 --memory-format contiguous
run b05-05-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2139611383 --block 5 --position 5 --curves weak --precision float32 --memory-format contiguous
END_OF_RUNS
