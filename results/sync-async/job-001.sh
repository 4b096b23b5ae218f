#!/bin/bash
#
# Study 'sync-async' on this machine (site 'local'; not run yet):
# 36 runs.
# What does a parameter server that waits for nobody gain in speed, and what does it lose in what is learnt?
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
seed = 1910729263  # drawn at the first run
# What waiting costs and what it gives: a parameter server in both modes beside DDP. 36 runs, about eight minutes on two cores.
name = "sync-async"
question = "What does a parameter server that waits for nobody gain in speed, and what does it lose in what is learnt?"

cells = ["ddp/mpi", "ps/mpi", "ps/mpi@async"]
reference = "ps/mpi"
candidate = "ps/mpi@async"
settings = "shipped"
scaling = ["strong"]
world_sizes = [2]                              # that train; the one server is a third process
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 300
expected_run_s = 12                            # on two cores; for an estimate before the first run has ended

[strong]
global_batch = 32                              # an asynchronous update is of half of it

[run]
dataset = "digits"                             # a fifth is held out
image_size = 8
threads = 1
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 4
steps_per_window = 20
epochs = 30
target = 0.97
trainings = 2
model_width = 0.25
base_lr = 0.8
lr_warmup_steps = 100
lr_decay = "linear"
nesterov = true
label_smoothing = 0.1

[arms.async]
mode = "async"

[variants.mlp]
model = "mlp"

[variants.resnet9]
model = "resnet9"
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study sync-async
  --study-sha256 0c8c06013ebbd3acdbfb60edcc51a406b5d54320798067b3329fad829411deb2
  --dataset digits
  --image-size 8
  --threads 1
  --warmup-steps 30
  --windows 4
  --steps-per-window 20
  --epochs 30
  --target 0.97
  --trainings 2
  --model-width 0.25
  --base-lr 0.8
  --lr-warmup-steps 100
  --lr-decay linear
  --nesterov
  --label-smoothing 0.1
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/sync-async
  --study="$STUDY"
  --limit-s=300 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1910729263
run b00-00-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729263 --block 0 --position 0 --curves strong --model mlp --mode sync
run b00-01-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729263 --block 0 --position 1 --curves strong --model resnet9 --mode sync
run b00-02-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729263 --block 0 --position 2 --curves strong --model resnet9 --mode async --world-size 2
run b00-03-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729263 --block 0 --position 3 --curves strong --model resnet9 --mode sync --world-size 2
run b00-04-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729263 --block 0 --position 4 --curves strong --model mlp --mode sync --world-size 2
run b00-05-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729263 --block 0 --position 5 --curves strong --model mlp --mode async --world-size 2

# Block 1: one randomised pass, every run with seed 1910729264
run b01-00-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729264 --block 1 --position 0 --curves strong --model resnet9 --mode sync
run b01-01-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729264 --block 1 --position 1 --curves strong --model mlp --mode sync
run b01-02-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729264 --block 1 --position 2 --curves strong --model mlp --mode async --world-size 2
run b01-03-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729264 --block 1 --position 3 --curves strong --model mlp --mode sync --world-size 2
run b01-04-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729264 --block 1 --position 4 --curves strong --model resnet9 --mode sync --world-size 2
run b01-05-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729264 --block 1 --position 5 --curves strong --model resnet9 --mode async --world-size 2

# Block 2: one randomised pass, every run with seed 1910729265
run b02-00-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729265 --block 2 --position 0 --curves strong --model mlp --mode sync --world-size 2
run b02-01-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729265 --block 2 --position 1 --curves strong --model mlp --mode async --world-size 2
run b02-02-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729265 --block 2 --position 2 --curves strong --model resnet9 --mode async --world-size 2
run b02-03-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729265 --block 2 --position 3 --curves strong --model resnet9 --mode sync --world-size 2
run b02-04-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729265 --block 2 --position 4 --curves strong --model mlp --mode sync
run b02-05-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729265 --block 2 --position 5 --curves strong --model resnet9 --mode sync

# Block 3: one randomised pass, every run with seed 1910729266
run b03-00-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729266 --block 3 --position 0 --curves strong --model resnet9 --mode sync
run b03-01-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729266 --block 3 --position 1 --curves strong --model mlp --mode sync
run b03-02-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729266 --block 3 --position 2 --curves strong --model resnet9 --mode sync --world-size 2
run b03-03-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729266 --block 3 --position 3 --curves strong --model resnet9 --mode async --world-size 2
run b03-04-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729266 --block 3 --position 4 --curves strong --model mlp --mode async --world-size 2
run b03-05-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729266 --block 3 --position 5 --curves strong --model mlp --mode sync --world-size 2

# Block 4: one randomised pass, every run with seed 1910729267
run b04-00-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729267 --block 4 --position 0 --curves strong --model mlp --mode sync --world-size 2
run b04-01-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729267 --block 4 --position 1 --curves strong --model mlp --mode async --world-size 2
run b04-02-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729267 --block 4 --position 2 --curves strong --model resnet9 --mode async --world-size 2
run b04-03-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729267 --block 4 --position 3 --curves strong --model resnet9 --mode sync --world-size 2
run b04-04-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729267 --block 4 --position 4 --curves strong --model resnet9 --mode sync
run b04-05-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729267 --block 4 --position 5 --curves strong --model mlp --mode sync

# Block 5: one randomised pass, every run with seed 1910729268
run b05-00-ddp-mpi-w2-b16-mlp 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729268 --block 5 --position 0 --curves strong --model mlp --mode sync
run b05-01-ddp-mpi-w2-b16-resnet9 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729268 --block 5 --position 1 --curves strong --model resnet9 --mode sync
run b05-02-ps-mpi-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729268 --block 5 --position 2 --curves strong --model resnet9 --mode sync --world-size 2
run b05-03-ps-mpi-async-w2-b16-resnet9 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729268 --block 5 --position 3 --curves strong --model resnet9 --mode async --world-size 2
run b05-04-ps-mpi-async-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --arm async --batch-per-rank 16 --seed 1910729268 --block 5 --position 4 --curves strong --model mlp --mode async --world-size 2
run b05-05-ps-mpi-w2-b16-mlp 3 --backend ps --transport mpi --settings shipped --batch-per-rank 16 --seed 1910729268 --block 5 --position 5 --curves strong --model mlp --mode sync --world-size 2
END_OF_RUNS
