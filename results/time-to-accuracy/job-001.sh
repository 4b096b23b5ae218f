#!/bin/bash
#
# Study 'time-to-accuracy' on this machine (site 'local'; not run yet):
# 28 runs.
# How soon, and how surely, does each way of averaging gradients reach 97 % on handwritten digits it has not seen?
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
seed = 1404057291  # drawn at the first run
# Does the framework change what is learned, or how soon? 28 runs of five trainings each, about six minutes on two cores.
name = "time-to-accuracy"
question = "How soon, and how surely, does each way of averaging gradients reach 97 % on handwritten digits it has not seen?"

cells = ["single", "ddp/mpi", "horovod/mpi", "handwritten/mpi"]
settings = "shipped"                           # each framework's own defaults
scaling = ["strong"]
world_sizes = [1, 2]
blocks = 2
margin = 0.02
time_limit_s = 300
expected_run_s = 12                            # on two cores; for an estimate before the first run has ended

[strong]
global_batch = 32                              # the same learning at any number of ranks

[run]
dataset = "digits"                             # a fifth is held out
image_size = 8
threads = 1
warmup_steps = 10
windows = 4
steps_per_window = 5
epochs = 30
target = 0.97
trainings = 5
model_width = 0.25
base_lr = 0.8
lr_warmup_steps = 100
lr_decay = "linear"
nesterov = true
label_smoothing = 0.1

[variants.mlp]
model = "mlp"

[variants.resnet9]
model = "resnet9"
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study time-to-accuracy
  --study-sha256 54bbdf54d4739fc4fbdab978fe49883967eb5186b865070cd35f62d244118ea6
  --dataset digits
  --image-size 8
  --threads 1
  --warmup-steps 10
  --windows 4
  --steps-per-window 5
  --epochs 30
  --target 0.97
  --trainings 5
  --model-width 0.25
  --base-lr 0.8
  --lr-warmup-steps 100
  --lr-decay linear
  --nesterov
  --label-smoothing 0.1
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/time-to-accuracy
  --study="$STUDY"
  --limit-s=300 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1404057291
run b00-00-horovod-mpi-w1-b32-mlp 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 0 --curves strong --model mlp
run b00-01-ddp-mpi-w1-b32-mlp 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 1 --curves strong --model mlp
run b00-02-ddp-mpi-w1-b32-resnet9 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 2 --curves strong --model resnet9
run b00-03-horovod-mpi-w1-b32-resnet9 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 3 --curves strong --model resnet9
run b00-04-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 4 --curves strong --model resnet9
run b00-05-horovod-mpi-w2-b16-resnet9 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 5 --curves strong --model resnet9
run b00-06-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 6 --curves strong --model mlp
run b00-07-horovod-mpi-w2-b16-mlp 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 7 --curves strong --model mlp
run b00-08-handwritten-mpi-w1-b32-mlp 1 --backend handwritten --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 8 --curves strong --model mlp
run b00-09-handwritten-mpi-w1-b32-resnet9 1 --backend handwritten --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 9 --curves strong --model resnet9
run b00-10-handwritten-mpi-w2-b16-mlp 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 10 --curves strong --model mlp
run b00-11-handwritten-mpi-w2-b16-resnet9 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057291 --block 0 --position 11 --curves strong --model resnet9
run b00-12-single-w1-b32-resnet9 1 --backend single --transport none --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 12 --curves strong --model resnet9
run b00-13-single-w1-b32-mlp 1 --backend single --transport none --settings shipped --batch-per-rank 32 --seed 1404057291 --block 0 --position 13 --curves strong --model mlp

# Block 1: one randomised pass, every run with seed 1404057292
run b01-00-single-w1-b32-mlp 1 --backend single --transport none --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 0 --curves strong --model mlp
run b01-01-single-w1-b32-resnet9 1 --backend single --transport none --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 1 --curves strong --model resnet9
run b01-02-handwritten-mpi-w2-b16-resnet9 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 2 --curves strong --model resnet9
run b01-03-handwritten-mpi-w2-b16-mlp 2 --backend handwritten --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 3 --curves strong --model mlp
run b01-04-horovod-mpi-w2-b16-mlp 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 4 --curves strong --model mlp
run b01-05-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 5 --curves strong --model mlp
run b01-06-horovod-mpi-w2-b16-resnet9 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 6 --curves strong --model resnet9
run b01-07-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1404057292 --block 1 --position 7 --curves strong --model resnet9
run b01-08-horovod-mpi-w1-b32-resnet9 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 8 --curves strong --model resnet9
run b01-09-ddp-mpi-w1-b32-resnet9 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 9 --curves strong --model resnet9
run b01-10-ddp-mpi-w1-b32-mlp 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 10 --curves strong --model mlp
run b01-11-horovod-mpi-w1-b32-mlp 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 11 --curves strong --model mlp
run b01-12-handwritten-mpi-w1-b32-resnet9 1 --backend handwritten --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 12 --curves strong --model resnet9
run b01-13-handwritten-mpi-w1-b32-mlp 1 --backend handwritten --transport mpi --settings shipped --batch-per-rank 32 --seed 1404057292 --block 1 --position 13 --curves strong --model mlp
END_OF_RUNS
