#!/bin/bash
#
# Study 'injected-11' on this machine (site 'local'; not run yet):
# 12 runs.
# Does the instrument find a slowdown that was put there?
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
# One cell against itself with a stated sleep in every step, for the instrument itself: 12 short runs, about four minutes on two cores.
name = "injected-11"
question = "Does the instrument find a slowdown that was put there?"

cells = ["ddp/mpi", "ddp/mpi@slow"]            # the same cell, and an arm of it that sleeps
reference = "ddp/mpi"
candidate = "ddp/mpi@slow"
settings = "shipped"
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.1                                   # as fine as six blocks of short runs are on a shared machine
time_limit_s = 120
expected_run_s = 10                            # on two cores
seed = 11000

[weak]
batch_per_rank = 4

[run]
model = "resnet18"                             # short runs: what is tried is the way from a run to a verdict
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 12                              # what is left of a warm-up would count against who warms up longest
windows = 4
steps_per_window = 4
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge

[arms.slow]
inject_ms = 38.0
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study injected-11
  --study-sha256 2d883f3c5186c327002af75d24ee6275b46fa2b02ac04b92a0fad9a6dd6453d4
  --model resnet18
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 12
  --windows 4
  --steps-per-window 4
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/repeats/injected-11
  --study="$STUDY"
  --limit-s=120 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 11000
run b00-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11000 --block 0 --position 0 --curves weak --inject-ms 0.0
run b00-01-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11000 --block 0 --position 1 --curves weak --inject-ms 38.0

# Block 1: one randomised pass, every run with seed 11001
run b01-00-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11001 --block 1 --position 0 --curves weak --inject-ms 38.0
run b01-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11001 --block 1 --position 1 --curves weak --inject-ms 0.0

# Block 2: one randomised pass, every run with seed 11002
run b02-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11002 --block 2 --position 0 --curves weak --inject-ms 0.0
run b02-01-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11002 --block 2 --position 1 --curves weak --inject-ms 38.0

# Block 3: one randomised pass, every run with seed 11003
run b03-00-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11003 --block 3 --position 0 --curves weak --inject-ms 38.0
run b03-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11003 --block 3 --position 1 --curves weak --inject-ms 0.0

# Block 4: one randomised pass, every run with seed 11004
run b04-00-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11004 --block 4 --position 0 --curves weak --inject-ms 0.0
run b04-01-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11004 --block 4 --position 1 --curves weak --inject-ms 38.0

# Block 5: one randomised pass, every run with seed 11005
run b05-00-ddp-mpi-slow-w2-b4 2 --backend ddp --transport mpi --settings shipped --arm slow --batch-per-rank 4 --seed 11005 --block 5 --position 0 --curves weak --inject-ms 38.0
run b05-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 11005 --block 5 --position 1 --curves weak --inject-ms 0.0
END_OF_RUNS
