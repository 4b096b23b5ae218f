#!/bin/bash
#
# Study 'exposed' on this machine (site 'local'; not run yet):
# 120 runs.
# What does the exchange of gradients add to a step, and how much of it does the backward pass hide, under each framework and transport?
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
seed = 765482743  # drawn at the first run
# What the difference is made of: 120 runs, about 40 minutes on two cores.
name = "exposed"
question = "What does the exchange of gradients add to a step, and how much of it does the backward pass hide, under each framework and transport?"

cells = ["ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
settings = "shipped"                           # each framework's own defaults
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

# T(on) - T(off) comes from runs that nobody watches; exposed time and inflation from twins of them that are observed.
# What the frameworks' own instruments say comes from further twins, which count as evidence alone.
[variants.on]
exchange = "on"

[variants.off]
exchange = "off"

[variants.on-observed]
exchange = "on"
observe = "breakdown"

[variants.off-observed]
exchange = "off"
observe = "breakdown"

[variants.on-framework]
exchange = "on"
observe = "framework"
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study exposed
  --study-sha256 cda41fcf795dcc4ab56a515775599b044cefcb778fb3051541774c8f4287f4f7
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
  --study-dir=results/mine/exposed
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 765482743
run b00-00-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 0 --curves weak --exchange on --observe nothing
run b00-01-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 1 --curves weak --exchange on --observe nothing
run b00-02-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 2 --curves weak --exchange on --observe breakdown
run b00-03-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 3 --curves weak --exchange on --observe breakdown
run b00-04-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 4 --curves weak --exchange off --observe breakdown
run b00-05-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 5 --curves weak --exchange off --observe breakdown
run b00-06-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 6 --curves weak --exchange on --observe framework
run b00-07-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 7 --curves weak --exchange on --observe framework
run b00-08-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 8 --curves weak --exchange off --observe nothing
run b00-09-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 9 --curves weak --exchange off --observe nothing
run b00-10-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 10 --curves weak --exchange off --observe breakdown
run b00-11-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 11 --curves weak --exchange off --observe breakdown
run b00-12-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 12 --curves weak --exchange off --observe nothing
run b00-13-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 13 --curves weak --exchange off --observe nothing
run b00-14-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 14 --curves weak --exchange on --observe breakdown
run b00-15-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 15 --curves weak --exchange on --observe breakdown
run b00-16-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 16 --curves weak --exchange on --observe framework
run b00-17-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 17 --curves weak --exchange on --observe framework
run b00-18-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 18 --curves weak --exchange on --observe nothing
run b00-19-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482743 --block 0 --position 19 --curves weak --exchange on --observe nothing

# Block 1: one randomised pass, every run with seed 765482744
run b01-00-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 0 --curves weak --exchange on --observe nothing
run b01-01-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 1 --curves weak --exchange on --observe nothing
run b01-02-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 2 --curves weak --exchange on --observe framework
run b01-03-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 3 --curves weak --exchange on --observe framework
run b01-04-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 4 --curves weak --exchange on --observe breakdown
run b01-05-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 5 --curves weak --exchange on --observe breakdown
run b01-06-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 6 --curves weak --exchange off --observe nothing
run b01-07-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 7 --curves weak --exchange off --observe nothing
run b01-08-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 8 --curves weak --exchange off --observe breakdown
run b01-09-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 9 --curves weak --exchange off --observe breakdown
run b01-10-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 10 --curves weak --exchange off --observe nothing
run b01-11-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 11 --curves weak --exchange off --observe nothing
run b01-12-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 12 --curves weak --exchange on --observe framework
run b01-13-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 13 --curves weak --exchange on --observe framework
run b01-14-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 14 --curves weak --exchange off --observe breakdown
run b01-15-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 15 --curves weak --exchange off --observe breakdown
run b01-16-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 16 --curves weak --exchange on --observe breakdown
run b01-17-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 17 --curves weak --exchange on --observe breakdown
run b01-18-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 18 --curves weak --exchange on --observe nothing
run b01-19-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482744 --block 1 --position 19 --curves weak --exchange on --observe nothing

# Block 2: one randomised pass, every run with seed 765482745
run b02-00-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 0 --curves weak --exchange on --observe nothing
run b02-01-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 1 --curves weak --exchange on --observe nothing
run b02-02-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 2 --curves weak --exchange on --observe breakdown
run b02-03-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 3 --curves weak --exchange on --observe breakdown
run b02-04-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 4 --curves weak --exchange off --observe breakdown
run b02-05-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 5 --curves weak --exchange off --observe breakdown
run b02-06-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 6 --curves weak --exchange off --observe nothing
run b02-07-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 7 --curves weak --exchange off --observe nothing
run b02-08-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 8 --curves weak --exchange on --observe framework
run b02-09-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 9 --curves weak --exchange on --observe framework
run b02-10-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 10 --curves weak --exchange on --observe framework
run b02-11-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 11 --curves weak --exchange on --observe framework
run b02-12-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 12 --curves weak --exchange off --observe breakdown
run b02-13-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 13 --curves weak --exchange off --observe breakdown
run b02-14-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 14 --curves weak --exchange on --observe breakdown
run b02-15-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 15 --curves weak --exchange on --observe breakdown
run b02-16-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 16 --curves weak --exchange on --observe nothing
run b02-17-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 17 --curves weak --exchange on --observe nothing
run b02-18-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 18 --curves weak --exchange off --observe nothing
run b02-19-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482745 --block 2 --position 19 --curves weak --exchange off --observe nothing

# Block 3: one randomised pass, every run with seed 765482746
run b03-00-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 0 --curves weak --exchange off --observe nothing
run b03-01-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 1 --curves weak --exchange off --observe nothing
run b03-02-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 2 --curves weak --exchange on --observe nothing
run b03-03-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 3 --curves weak --exchange on --observe nothing
run b03-04-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 4 --curves weak --exchange on --observe breakdown
run b03-05-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 5 --curves weak --exchange on --observe breakdown
run b03-06-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 6 --curves weak --exchange off --observe breakdown
run b03-07-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 7 --curves weak --exchange off --observe breakdown
run b03-08-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 8 --curves weak --exchange on --observe framework
run b03-09-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 9 --curves weak --exchange on --observe framework
run b03-10-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 10 --curves weak --exchange on --observe framework
run b03-11-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 11 --curves weak --exchange on --observe framework
run b03-12-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 12 --curves weak --exchange off --observe nothing
run b03-13-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 13 --curves weak --exchange off --observe nothing
run b03-14-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 14 --curves weak --exchange off --observe breakdown
run b03-15-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 15 --curves weak --exchange off --observe breakdown
run b03-16-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 16 --curves weak --exchange on --observe breakdown
run b03-17-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 17 --curves weak --exchange on --observe breakdown
run b03-18-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 18 --curves weak --exchange on --observe nothing
run b03-19-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482746 --block 3 --position 19 --curves weak --exchange on --observe nothing

# Block 4: one randomised pass, every run with seed 765482747
run b04-00-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 0 --curves weak --exchange on --observe breakdown
run b04-01-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 1 --curves weak --exchange on --observe breakdown
run b04-02-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 2 --curves weak --exchange on --observe framework
run b04-03-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 3 --curves weak --exchange on --observe framework
run b04-04-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 4 --curves weak --exchange on --observe nothing
run b04-05-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 5 --curves weak --exchange on --observe nothing
run b04-06-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 6 --curves weak --exchange off --observe nothing
run b04-07-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 7 --curves weak --exchange off --observe nothing
run b04-08-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 8 --curves weak --exchange off --observe breakdown
run b04-09-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 9 --curves weak --exchange off --observe breakdown
run b04-10-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 10 --curves weak --exchange on --observe framework
run b04-11-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 11 --curves weak --exchange on --observe framework
run b04-12-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 12 --curves weak --exchange on --observe nothing
run b04-13-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 13 --curves weak --exchange on --observe nothing
run b04-14-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 14 --curves weak --exchange off --observe nothing
run b04-15-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 15 --curves weak --exchange off --observe nothing
run b04-16-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 16 --curves weak --exchange off --observe breakdown
run b04-17-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 17 --curves weak --exchange off --observe breakdown
run b04-18-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 18 --curves weak --exchange on --observe breakdown
run b04-19-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482747 --block 4 --position 19 --curves weak --exchange on --observe breakdown

# Block 5: one randomised pass, every run with seed 765482748
run b05-00-ddp-mpi-w2-b4-on-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 0 --curves weak --exchange on --observe breakdown
run b05-01-horovod-mpi-w2-b4-on-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 1 --curves weak --exchange on --observe breakdown
run b05-02-horovod-mpi-w2-b4-off-observed 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 2 --curves weak --exchange off --observe breakdown
run b05-03-ddp-mpi-w2-b4-off-observed 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 3 --curves weak --exchange off --observe breakdown
run b05-04-horovod-mpi-w2-b4-off 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 4 --curves weak --exchange off --observe nothing
run b05-05-ddp-mpi-w2-b4-off 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 5 --curves weak --exchange off --observe nothing
run b05-06-ddp-mpi-w2-b4-on 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 6 --curves weak --exchange on --observe nothing
run b05-07-horovod-mpi-w2-b4-on 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 7 --curves weak --exchange on --observe nothing
run b05-08-horovod-mpi-w2-b4-on-framework 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 8 --curves weak --exchange on --observe framework
run b05-09-ddp-mpi-w2-b4-on-framework 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 9 --curves weak --exchange on --observe framework
run b05-10-horovod-gloo-w2-b4-off-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 10 --curves weak --exchange off --observe breakdown
run b05-11-ddp-gloo-w2-b4-off-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 11 --curves weak --exchange off --observe breakdown
run b05-12-horovod-gloo-w2-b4-off 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 12 --curves weak --exchange off --observe nothing
run b05-13-ddp-gloo-w2-b4-off 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 13 --curves weak --exchange off --observe nothing
run b05-14-horovod-gloo-w2-b4-on 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 14 --curves weak --exchange on --observe nothing
run b05-15-ddp-gloo-w2-b4-on 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 15 --curves weak --exchange on --observe nothing
run b05-16-ddp-gloo-w2-b4-on-framework 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 16 --curves weak --exchange on --observe framework
run b05-17-horovod-gloo-w2-b4-on-framework 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 17 --curves weak --exchange on --observe framework
run b05-18-ddp-gloo-w2-b4-on-observed 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 18 --curves weak --exchange on --observe breakdown
run b05-19-horovod-gloo-w2-b4-on-observed 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 765482748 --block 5 --position 19 --curves weak --exchange on --observe breakdown
END_OF_RUNS
