#!/bin/bash
#
# Study 'local' on this machine (site 'local'; not run yet):
# 30 runs.
# On one machine and over one wire, MPI, does it matter whether DDP or Horovod averages the gradients?
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
seed = 1436508914  # drawn at the first run
# The first look, on one machine: 30 runs, about ten minutes on two cores.
name = "local"
question = "On one machine and over one wire, MPI, does it matter whether DDP or Horovod averages the gradients?"

cells = ["single", "ddp/mpi", "horovod/mpi"]   # single is the common baseline; both frameworks travel over MPI
settings = "shipped"                           # each framework's own defaults
scaling = ["weak"]
world_sizes = [1, 2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02                                  # differences below 2 % count as none
time_limit_s = 180
expected_run_s = 18                            # on two cores; for an estimate before the first run has ended

[weak]
batch_per_rank = 4                             # the smaller the batch, the larger the share of communication

[run]
model = "resnet50"
dataset = "digits"                             # real images that need no download
image_size = 32
threads = 1
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 3
steps_per_window = 5
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study local
  --study-sha256 b24be2c8fd5762952951a67f9b2857c1fc0bba9566f7539f914c83439d9f1354
  --model resnet50
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 30
  --windows 3
  --steps-per-window 5
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/local
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1436508914
run b00-00-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508914 --block 0 --position 0 --curves weak
run b00-01-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508914 --block 0 --position 1 --curves weak
run b00-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508914 --block 0 --position 2 --curves weak
run b00-03-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508914 --block 0 --position 3 --curves weak
run b00-04-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508914 --block 0 --position 4 --curves weak

# Block 1: one randomised pass, every run with seed 1436508915
run b01-00-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508915 --block 1 --position 0 --curves weak
run b01-01-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508915 --block 1 --position 1 --curves weak
run b01-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508915 --block 1 --position 2 --curves weak
run b01-03-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508915 --block 1 --position 3 --curves weak
run b01-04-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508915 --block 1 --position 4 --curves weak

# Block 2: one randomised pass, every run with seed 1436508916
run b02-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508916 --block 2 --position 0 --curves weak
run b02-01-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508916 --block 2 --position 1 --curves weak
run b02-02-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508916 --block 2 --position 2 --curves weak
run b02-03-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508916 --block 2 --position 3 --curves weak
run b02-04-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508916 --block 2 --position 4 --curves weak

# Block 3: one randomised pass, every run with seed 1436508917
run b03-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508917 --block 3 --position 0 --curves weak
run b03-01-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508917 --block 3 --position 1 --curves weak
run b03-02-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508917 --block 3 --position 2 --curves weak
run b03-03-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508917 --block 3 --position 3 --curves weak
run b03-04-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508917 --block 3 --position 4 --curves weak

# Block 4: one randomised pass, every run with seed 1436508918
run b04-00-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508918 --block 4 --position 0 --curves weak
run b04-01-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508918 --block 4 --position 1 --curves weak
run b04-02-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508918 --block 4 --position 2 --curves weak
run b04-03-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508918 --block 4 --position 3 --curves weak
run b04-04-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508918 --block 4 --position 4 --curves weak

# Block 5: one randomised pass, every run with seed 1436508919
run b05-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 1436508919 --block 5 --position 0 --curves weak
run b05-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508919 --block 5 --position 1 --curves weak
run b05-02-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508919 --block 5 --position 2 --curves weak
run b05-03-horovod-mpi-w1-b4 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508919 --block 5 --position 3 --curves weak
run b05-04-ddp-mpi-w1-b4 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1436508919 --block 5 --position 4 --curves weak
END_OF_RUNS
