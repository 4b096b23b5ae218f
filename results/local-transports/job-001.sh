#!/bin/bash
#
# Study 'local-transports' on this machine (site 'local'; not run yet):
# 80 runs.
# Does the answer to DDP or Horovod depend on the wire, MPI or Gloo, and on how much there is to compute for each exchange?
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
seed = 2023426144  # drawn at the first run
# Framework x transport on one machine: 80 runs.
name = "local-transports"
question = "Does the answer to DDP or Horovod depend on the wire, MPI or Gloo, and on how much there is to compute for each exchange?"

cells = ["single", "ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
settings = "shipped"
scaling = ["batch"]
blocks = 8
margin = 0.02
time_limit_s = 180
expected_run_s = 19                            # on two cores; for an estimate before the first run has ended

[batch]
batch_per_rank = [4, 16]                       # the smaller the batch, the larger the share of communication
world_sizes = [2]

[run]
model = "resnet50"
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 3
steps_per_window = 7
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study local-transports
  --study-sha256 c96217b812b8cad79b4ff1f87f6a488f7b7b13b6c6199015a6063b67b23b2036
  --model resnet50
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 30
  --windows 3
  --steps-per-window 7
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/local-transports
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 2023426144
run b00-00-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426144 --block 0 --position 0 --curves batch
run b00-01-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426144 --block 0 --position 1 --curves batch
run b00-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426144 --block 0 --position 2 --curves batch
run b00-03-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426144 --block 0 --position 3 --curves batch
run b00-04-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426144 --block 0 --position 4 --curves batch
run b00-05-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426144 --block 0 --position 5 --curves batch
run b00-06-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426144 --block 0 --position 6 --curves batch
run b00-07-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426144 --block 0 --position 7 --curves batch
run b00-08-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426144 --block 0 --position 8 --curves batch
run b00-09-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426144 --block 0 --position 9 --curves batch

# Block 1: one randomised pass, every run with seed 2023426145
run b01-00-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426145 --block 1 --position 0 --curves batch
run b01-01-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426145 --block 1 --position 1 --curves batch
run b01-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426145 --block 1 --position 2 --curves batch
run b01-03-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426145 --block 1 --position 3 --curves batch
run b01-04-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426145 --block 1 --position 4 --curves batch
run b01-05-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426145 --block 1 --position 5 --curves batch
run b01-06-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426145 --block 1 --position 6 --curves batch
run b01-07-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426145 --block 1 --position 7 --curves batch
run b01-08-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426145 --block 1 --position 8 --curves batch
run b01-09-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426145 --block 1 --position 9 --curves batch

# Block 2: one randomised pass, every run with seed 2023426146
run b02-00-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426146 --block 2 --position 0 --curves batch
run b02-01-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426146 --block 2 --position 1 --curves batch
run b02-02-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426146 --block 2 --position 2 --curves batch
run b02-03-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426146 --block 2 --position 3 --curves batch
run b02-04-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426146 --block 2 --position 4 --curves batch
run b02-05-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426146 --block 2 --position 5 --curves batch
run b02-06-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426146 --block 2 --position 6 --curves batch
run b02-07-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426146 --block 2 --position 7 --curves batch
run b02-08-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426146 --block 2 --position 8 --curves batch
run b02-09-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426146 --block 2 --position 9 --curves batch

# Block 3: one randomised pass, every run with seed 2023426147
run b03-00-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426147 --block 3 --position 0 --curves batch
run b03-01-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426147 --block 3 --position 1 --curves batch
run b03-02-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426147 --block 3 --position 2 --curves batch
run b03-03-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426147 --block 3 --position 3 --curves batch
run b03-04-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426147 --block 3 --position 4 --curves batch
run b03-05-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426147 --block 3 --position 5 --curves batch
run b03-06-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426147 --block 3 --position 6 --curves batch
run b03-07-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426147 --block 3 --position 7 --curves batch
run b03-08-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426147 --block 3 --position 8 --curves batch
run b03-09-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426147 --block 3 --position 9 --curves batch

# Block 4: one randomised pass, every run with seed 2023426148
run b04-00-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426148 --block 4 --position 0 --curves batch
run b04-01-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426148 --block 4 --position 1 --curves batch
run b04-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426148 --block 4 --position 2 --curves batch
run b04-03-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426148 --block 4 --position 3 --curves batch
run b04-04-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426148 --block 4 --position 4 --curves batch
run b04-05-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426148 --block 4 --position 5 --curves batch
run b04-06-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426148 --block 4 --position 6 --curves batch
run b04-07-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426148 --block 4 --position 7 --curves batch
run b04-08-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426148 --block 4 --position 8 --curves batch
run b04-09-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426148 --block 4 --position 9 --curves batch

# Block 5: one randomised pass, every run with seed 2023426149
run b05-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426149 --block 5 --position 0 --curves batch
run b05-01-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426149 --block 5 --position 1 --curves batch
run b05-02-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426149 --block 5 --position 2 --curves batch
run b05-03-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426149 --block 5 --position 3 --curves batch
run b05-04-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426149 --block 5 --position 4 --curves batch
run b05-05-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426149 --block 5 --position 5 --curves batch
run b05-06-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426149 --block 5 --position 6 --curves batch
run b05-07-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426149 --block 5 --position 7 --curves batch
run b05-08-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426149 --block 5 --position 8 --curves batch
run b05-09-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426149 --block 5 --position 9 --curves batch

# Block 6: one randomised pass, every run with seed 2023426150
run b06-00-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426150 --block 6 --position 0 --curves batch
run b06-01-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426150 --block 6 --position 1 --curves batch
run b06-02-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426150 --block 6 --position 2 --curves batch
run b06-03-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426150 --block 6 --position 3 --curves batch
run b06-04-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426150 --block 6 --position 4 --curves batch
run b06-05-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426150 --block 6 --position 5 --curves batch
run b06-06-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426150 --block 6 --position 6 --curves batch
run b06-07-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426150 --block 6 --position 7 --curves batch
run b06-08-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426150 --block 6 --position 8 --curves batch
run b06-09-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426150 --block 6 --position 9 --curves batch

# Block 7: one randomised pass, every run with seed 2023426151
run b07-00-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426151 --block 7 --position 0 --curves batch
run b07-01-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 2023426151 --block 7 --position 1 --curves batch
run b07-02-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426151 --block 7 --position 2 --curves batch
run b07-03-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 2023426151 --block 7 --position 3 --curves batch
run b07-04-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426151 --block 7 --position 4 --curves batch
run b07-05-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 2023426151 --block 7 --position 5 --curves batch
run b07-06-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 2023426151 --block 7 --position 6 --curves batch
run b07-07-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 2023426151 --block 7 --position 7 --curves batch
run b07-08-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426151 --block 7 --position 8 --curves batch
run b07-09-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 2023426151 --block 7 --position 9 --curves batch
END_OF_RUNS
