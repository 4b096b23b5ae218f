#!/bin/bash
#
# Study 'precision' on this machine (site 'local'; not run yet):
# 12 runs.
# Does it matter whether DDP or Horovod averages the gradients once ResNet-50 trains in bfloat16?
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
seed = 1212766426  # drawn at the first run
# What bfloat16 gains, and whether it gains the same in both frameworks: 36 runs and more until it is settled, about 50 minutes on two cores that know it.
name = "precision"
question = "Does it matter whether DDP or Horovod averages the gradients once ResNet-50 trains in bfloat16?"

cells = ["ddp/mpi", "horovod/mpi"]
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6
margin = 0.02
time_limit_s = 300
expected_run_s = 80                            # on two cores

[weak]
batch_per_rank = 16

[run]
model = "resnet50"
dataset = "synthetic"
image_size = 112
preprocessing = "outside"                      # the arithmetic alone is the subject
threads = 1
warmup_steps = 15
windows = 20
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 3
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
  --study-sha256 6e185fc19c0743afe80e4555ec50af64a37aa989b873c3ab28a33bbb56e0e95e
  --model resnet50
  --dataset synthetic
  --image-size 112
  --preprocessing outside
  --threads 1
  --warmup-steps 15
  --windows 20
  --lead-in-steps 1
  --steps-per-window 3
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/precision
  --study="$STUDY"
  --limit-s=300 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1212766426
turns 6
run b00-00-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --variant float32 --batch-per-rank 16 --seed 1212766426 --block 0 --position 0 --curves weak --precision float32 --memory-format contiguous
run b00-01-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --variant float32 --batch-per-rank 16 --seed 1212766426 --block 0 --position 1 --curves weak --precision float32 --memory-format contiguous
run b00-02-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --variant bf16-mixed --batch-per-rank 16 --seed 1212766426 --block 0 --position 2 --curves weak --precision bf16-mixed --memory-format channels_last
run b00-03-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --variant bf16-mixed --batch-per-rank 16 --seed 1212766426 --block 0 --position 3 --curves weak --precision bf16-mixed --memory-format channels_last
run b00-04-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --variant bf16 --batch-per-rank 16 --seed 1212766426 --block 0 --position 4 --curves weak --precision bf16 --memory-format channels_last
run b00-05-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --variant bf16 --batch-per-rank 16 --seed 1212766426 --block 0 --position 5 --curves weak --precision bf16 --memory-format channels_last

# Block 1: one randomised pass, every run with seed 1212766427
turns 6
run b01-00-horovod-mpi-w2-b16-bf16 2 --backend horovod --transport mpi --settings shipped --variant bf16 --batch-per-rank 16 --seed 1212766427 --block 1 --position 0 --curves weak --precision bf16 --memory-format channels_last
run b01-01-ddp-mpi-w2-b16-bf16 2 --backend ddp --transport mpi --settings shipped --variant bf16 --batch-per-rank 16 --seed 1212766427 --block 1 --position 1 --curves weak --precision bf16 --memory-format channels_last
run b01-02-horovod-mpi-w2-b16-bf16-mixed 2 --backend horovod --transport mpi --settings shipped --variant bf16-mixed --batch-per-rank 16 --seed 1212766427 --block 1 --position 2 --curves weak --precision bf16-mixed --memory-format channels_last
run b01-03-ddp-mpi-w2-b16-bf16-mixed 2 --backend ddp --transport mpi --settings shipped --variant bf16-mixed --batch-per-rank 16 --seed 1212766427 --block 1 --position 3 --curves weak --precision bf16-mixed --memory-format channels_last
run b01-04-horovod-mpi-w2-b16-float32 2 --backend horovod --transport mpi --settings shipped --variant float32 --batch-per-rank 16 --seed 1212766427 --block 1 --position 4 --curves weak --precision float32 --memory-format contiguous
run b01-05-ddp-mpi-w2-b16-float32 2 --backend ddp --transport mpi --settings shipped --variant float32 --batch-per-rank 16 --seed 1212766427 --block 1 --position 5 --curves weak --precision float32 --memory-format contiguous
END_OF_RUNS
