#!/bin/bash
#
# Study 'overlap' on this machine (site 'local'; not run yet):
# 48 runs.
# What does a step gain where the exchange of gradients overlaps the backward pass, under each framework and transport?
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
seed = 663804745  # drawn at the first run
# Blocking against overlapped exchange: 48 runs, about 20 minutes on two cores.
name = "overlap"
question = "What does a step gain where the exchange of gradients overlaps the backward pass, under each framework and transport?"

cells = ["ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
settings = "matched"                           # equal bytes in every exchange of both frameworks, with overlap too
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 180
expected_run_s = 20                            # on two cores; for an estimate before the first run has ended

[weak]
batch_per_rank = 4                             # as in the study local

[run]
model = "resnet50"
dataset = "digits"
image_size = 32
threads = 1
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 4
steps_per_window = 3
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge

[variants.on]
overlap = "on"

[variants.off]
overlap = "off"
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study overlap
  --study-sha256 d24d381b04880a783ae650418e2fc3eed5b84fb517bdfba96903db6d060f9d84
  --model resnet50
  --dataset digits
  --image-size 32
  --threads 1
  --warmup-steps 30
  --windows 4
  --steps-per-window 3
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/overlap
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 663804745
run b00-00-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 0 --curves weak --overlap on
run b00-01-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 1 --curves weak --overlap on
run b00-02-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 2 --curves weak --overlap off
run b00-03-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 3 --curves weak --overlap off
run b00-04-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 4 --curves weak --overlap on
run b00-05-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 5 --curves weak --overlap on
run b00-06-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 6 --curves weak --overlap off
run b00-07-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804745 --block 0 --position 7 --curves weak --overlap off

# Block 1: one randomised pass, every run with seed 663804746
run b01-00-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 0 --curves weak --overlap off
run b01-01-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 1 --curves weak --overlap off
run b01-02-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 2 --curves weak --overlap on
run b01-03-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 3 --curves weak --overlap on
run b01-04-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 4 --curves weak --overlap off
run b01-05-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 5 --curves weak --overlap off
run b01-06-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 6 --curves weak --overlap on
run b01-07-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804746 --block 1 --position 7 --curves weak --overlap on

# Block 2: one randomised pass, every run with seed 663804747
run b02-00-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 0 --curves weak --overlap off
run b02-01-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 1 --curves weak --overlap off
run b02-02-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 2 --curves weak --overlap on
run b02-03-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 3 --curves weak --overlap on
run b02-04-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 4 --curves weak --overlap on
run b02-05-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 5 --curves weak --overlap on
run b02-06-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 6 --curves weak --overlap off
run b02-07-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804747 --block 2 --position 7 --curves weak --overlap off

# Block 3: one randomised pass, every run with seed 663804748
run b03-00-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 0 --curves weak --overlap on
run b03-01-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 1 --curves weak --overlap on
run b03-02-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 2 --curves weak --overlap off
run b03-03-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 3 --curves weak --overlap off
run b03-04-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 4 --curves weak --overlap off
run b03-05-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 5 --curves weak --overlap off
run b03-06-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 6 --curves weak --overlap on
run b03-07-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804748 --block 3 --position 7 --curves weak --overlap on

# Block 4: one randomised pass, every run with seed 663804749
run b04-00-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 0 --curves weak --overlap on
run b04-01-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 1 --curves weak --overlap on
run b04-02-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 2 --curves weak --overlap off
run b04-03-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 3 --curves weak --overlap off
run b04-04-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 4 --curves weak --overlap off
run b04-05-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 5 --curves weak --overlap off
run b04-06-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 6 --curves weak --overlap on
run b04-07-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804749 --block 4 --position 7 --curves weak --overlap on

# Block 5: one randomised pass, every run with seed 663804750
run b05-00-horovod-mpi-w2-b4-matched-off 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 0 --curves weak --overlap off
run b05-01-ddp-mpi-w2-b4-matched-off 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 1 --curves weak --overlap off
run b05-02-ddp-mpi-w2-b4-matched-on 2 --backend ddp --transport mpi --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 2 --curves weak --overlap on
run b05-03-horovod-mpi-w2-b4-matched-on 2 --backend horovod --transport mpi --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 3 --curves weak --overlap on
run b05-04-horovod-gloo-w2-b4-matched-on 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 4 --curves weak --overlap on
run b05-05-ddp-gloo-w2-b4-matched-on 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 5 --curves weak --overlap on
run b05-06-ddp-gloo-w2-b4-matched-off 2 --backend ddp --transport gloo --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 6 --curves weak --overlap off
run b05-07-horovod-gloo-w2-b4-matched-off 2 --backend horovod --transport gloo --settings matched --batch-per-rank 4 --seed 663804750 --block 5 --position 7 --curves weak --overlap off
END_OF_RUNS
