#!/bin/bash
#
# Study 'injected' on this machine (site 'local'; not run yet):
# 18 runs.
# Does the instrument find slowdowns that were put there, and by how much?
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
seed = 1585862727  # drawn at the first run
# One cell against itself with stated sleeps in every step, for the instrument itself: six launches of three worlds, about seven minutes on two cores.
name = "injected"
question = "Does the instrument find slowdowns that were put there, and by how much?"

cells = ["ddp/mpi", "ddp/mpi@ms10", "ddp/mpi@ms30"]  # the same cell, and arms of it that sleep
reference = "ddp/mpi"
candidate = "ddp/mpi@ms30"
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 180
expected_run_s = 20                            # on two cores

[weak]
batch_per_rank = 4                             # all as in the study local

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

[arms.ms10]
inject_ms = 10.0                               # sleep of every rank in every step

[arms.ms30]
inject_ms = 30.0
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study injected
  --study-sha256 d0cd2f57c487c41ad517df2e61d93f5af0ec69520474a1091b06c30fb1b8c912
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
  --study-dir=results/injected
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1585862727
turns 3
run b00-00-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862727 --block 0 --position 0 --curves weak --inject-ms 30.0
run b00-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862727 --block 0 --position 1 --curves weak --inject-ms 10.0
run b00-02-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862727 --block 0 --position 2 --curves weak --inject-ms 0.0

# Block 1: one randomised pass, every run with seed 1585862728
turns 3
run b01-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862728 --block 1 --position 0 --curves weak --inject-ms 0.0
run b01-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862728 --block 1 --position 1 --curves weak --inject-ms 10.0
run b01-02-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862728 --block 1 --position 2 --curves weak --inject-ms 30.0

# Block 2: one randomised pass, every run with seed 1585862729
turns 3
run b02-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862729 --block 2 --position 0 --curves weak --inject-ms 0.0
run b02-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862729 --block 2 --position 1 --curves weak --inject-ms 10.0
run b02-02-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862729 --block 2 --position 2 --curves weak --inject-ms 30.0

# Block 3: one randomised pass, every run with seed 1585862730
turns 3
run b03-00-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862730 --block 3 --position 0 --curves weak --inject-ms 30.0
run b03-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862730 --block 3 --position 1 --curves weak --inject-ms 10.0
run b03-02-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862730 --block 3 --position 2 --curves weak --inject-ms 0.0

# Block 4: one randomised pass, every run with seed 1585862731
turns 3
run b04-00-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862731 --block 4 --position 0 --curves weak --inject-ms 30.0
run b04-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862731 --block 4 --position 1 --curves weak --inject-ms 10.0
run b04-02-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862731 --block 4 --position 2 --curves weak --inject-ms 0.0

# Block 5: one randomised pass, every run with seed 1585862732
turns 3
run b05-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 1585862732 --block 5 --position 0 --curves weak --inject-ms 0.0
run b05-01-ddp-mpi-ms10-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms10 --batch-per-rank 4 --seed 1585862732 --block 5 --position 1 --curves weak --inject-ms 10.0
run b05-02-ddp-mpi-ms30-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm ms30 --batch-per-rank 4 --seed 1585862732 --block 5 --position 2 --curves weak --inject-ms 30.0
END_OF_RUNS
