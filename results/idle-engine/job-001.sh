#!/bin/bash
#
# Study 'idle-engine' on this machine (site 'local'; not run yet):
# 12 runs.
# Does Horovod's engine, which looks for work every millisecond, slow a step that exchanges nothing?
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
seed = 1111694882  # drawn at the first run
# Horovod's engine with nothing to do: 12 runs, about four minutes on two cores.
name = "idle-engine"
question = "Does Horovod's engine, which looks for work every millisecond, slow a step that exchanges nothing?"

cells = ["horovod/gloo@often", "horovod/gloo@seldom"]
reference = "horovod/gloo@often"
candidate = "horovod/gloo@seldom"
settings = "tuned"                             # as shipped but for the knob of [arms.seldom]
scaling = ["weak"]
world_sizes = [2]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 180
expected_run_s = 20                            # on two cores

[weak]
batch_per_rank = 4                             # as in the study exposed

[run]
model = "resnet50"
dataset = "digits"
image_size = 32
threads = 1
exchange = "off"                               # gradients stay where they are; the engine runs on
warmup_steps = 30                              # what is left of a warm-up would count against who warms up longest
windows = 4
steps_per_window = 3
max_lr = 0.001                                 # speed is the subject; a rate that grows with the batch would diverge

[arms.often]
cycle_ms = 1.0                                 # Horovod's default

[arms.seldom]
cycle_ms = 100.0
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study idle-engine
  --study-sha256 e9db697d3781d3c5851041e268957993f6ee0a6bcea1cd0981ff25a88373ccda
  --model resnet50
  --dataset digits
  --image-size 32
  --threads 1
  --exchange off
  --warmup-steps 30
  --windows 4
  --steps-per-window 3
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/idle-engine
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1111694882
run b00-00-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694882 --block 0 --position 0 --curves weak --cycle-ms 100.0
run b00-01-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694882 --block 0 --position 1 --curves weak --cycle-ms 1.0

# Block 1: one randomised pass, every run with seed 1111694883
run b01-00-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694883 --block 1 --position 0 --curves weak --cycle-ms 1.0
run b01-01-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694883 --block 1 --position 1 --curves weak --cycle-ms 100.0

# Block 2: one randomised pass, every run with seed 1111694884
run b02-00-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694884 --block 2 --position 0 --curves weak --cycle-ms 1.0
run b02-01-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694884 --block 2 --position 1 --curves weak --cycle-ms 100.0

# Block 3: one randomised pass, every run with seed 1111694885
run b03-00-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694885 --block 3 --position 0 --curves weak --cycle-ms 100.0
run b03-01-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694885 --block 3 --position 1 --curves weak --cycle-ms 1.0

# Block 4: one randomised pass, every run with seed 1111694886
run b04-00-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694886 --block 4 --position 0 --curves weak --cycle-ms 1.0
run b04-01-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694886 --block 4 --position 1 --curves weak --cycle-ms 100.0

# Block 5: one randomised pass, every run with seed 1111694887
run b05-00-horovod-gloo-seldom-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm seldom --batch-per-rank 4 --seed 1111694887 --block 5 --position 0 --curves weak --cycle-ms 100.0
run b05-01-horovod-gloo-often-w2-b4-tuned 2 --backend horovod --transport gloo --settings tuned --arm often --batch-per-rank 4 --seed 1111694887 --block 5 --position 1 --curves weak --cycle-ms 1.0
END_OF_RUNS
