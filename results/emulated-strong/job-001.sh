#!/bin/bash
#
# Study 'emulated-strong' on this machine (site 'local'; not run yet):
# 102 runs.
# How do the exchanges of DDP and Horovod scale from one to eight ranks that share a machine and a batch, when accelerators compute?
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
seed = 1845458170  # drawn at the first run
# Scaling beyond the cores at hand, on one machine: 102 runs and more until it is settled, 45 minutes and more on two cores. The forward and backward passes
# sleep as an accelerator's would take; exchange and optimiser are real, and have the machine's cores to themselves.
name = "emulated-strong"
question = "How do the exchanges of DDP and Horovod scale from one to eight ranks that share a machine and a batch, when accelerators compute?"

cells = ["single", "ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
settings = "shipped"                           # each framework's own defaults
scaling = ["strong"]
world_sizes = [1, 2, 4, 8]
blocks = 6                                     # the fewest that allow a verdict
margin = 0.02
time_limit_s = 240
expected_run_s = 30                            # on two cores

[strong]
global_batch = 2048                            # 0.92 s of compute in a step of one rank

[run]
model = "resnet50"
image_size = 32                                # the timeline's
emulate = "bench/instrument/timelines/resnet50-p100-32px.json"
threads = 1
warmup_steps = 4
windows = 6
lead_in_steps = 1                              # the first step of a turn is slower, and not alike
steps_per_window = 2
max_lr = 0.001                                 # nothing is learned from gradients that are a pattern
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study emulated-strong
  --study-sha256 7b8167e115e214ea059ee52ec2d0a1c4b15eb39ad140cbe92131152c598073b0
  --model resnet50
  --image-size 32
  --emulate bench/instrument/timelines/resnet50-p100-32px.json
  --threads 1
  --warmup-steps 4
  --windows 6
  --lead-in-steps 1
  --steps-per-window 2
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/emulated-strong
  --study="$STUDY"
  --limit-s=240 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 1845458170
turns 3
run b00-00-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458170 --block 0 --position 0 --curves strong
run b00-01-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458170 --block 0 --position 1 --curves strong
run b00-12-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458170 --block 0 --position 12 --curves strong
turns 2
run b00-02-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458170 --block 0 --position 2 --curves strong
run b00-03-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458170 --block 0 --position 3 --curves strong
turns 2
run b00-04-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458170 --block 0 --position 4 --curves strong
run b00-05-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458170 --block 0 --position 5 --curves strong
turns 2
run b00-06-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458170 --block 0 --position 6 --curves strong
run b00-07-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458170 --block 0 --position 7 --curves strong
turns 2
run b00-08-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458170 --block 0 --position 8 --curves strong
run b00-09-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458170 --block 0 --position 9 --curves strong
turns 2
run b00-10-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458170 --block 0 --position 10 --curves strong
run b00-11-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458170 --block 0 --position 11 --curves strong
turns 2
run b00-13-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458170 --block 0 --position 13 --curves strong
run b00-14-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458170 --block 0 --position 14 --curves strong
turns 2
run b00-15-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458170 --block 0 --position 15 --curves strong
run b00-16-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458170 --block 0 --position 16 --curves strong

# Block 1: one randomised pass, every run with seed 1845458171
turns 3
run b01-00-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458171 --block 1 --position 0 --curves strong
run b01-15-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458171 --block 1 --position 15 --curves strong
run b01-16-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458171 --block 1 --position 16 --curves strong
turns 2
run b01-01-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458171 --block 1 --position 1 --curves strong
run b01-02-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458171 --block 1 --position 2 --curves strong
turns 2
run b01-03-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458171 --block 1 --position 3 --curves strong
run b01-04-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458171 --block 1 --position 4 --curves strong
turns 2
run b01-05-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458171 --block 1 --position 5 --curves strong
run b01-06-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458171 --block 1 --position 6 --curves strong
turns 2
run b01-07-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458171 --block 1 --position 7 --curves strong
run b01-08-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458171 --block 1 --position 8 --curves strong
turns 2
run b01-09-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458171 --block 1 --position 9 --curves strong
run b01-10-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458171 --block 1 --position 10 --curves strong
turns 2
run b01-11-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458171 --block 1 --position 11 --curves strong
run b01-12-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458171 --block 1 --position 12 --curves strong
turns 2
run b01-13-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458171 --block 1 --position 13 --curves strong
run b01-14-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458171 --block 1 --position 14 --curves strong

# Block 2: one randomised pass, every run with seed 1845458172
turns 2
run b02-00-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458172 --block 2 --position 0 --curves strong
run b02-01-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458172 --block 2 --position 1 --curves strong
turns 3
run b02-02-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458172 --block 2 --position 2 --curves strong
run b02-03-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458172 --block 2 --position 3 --curves strong
run b02-12-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458172 --block 2 --position 12 --curves strong
turns 2
run b02-04-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458172 --block 2 --position 4 --curves strong
run b02-05-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458172 --block 2 --position 5 --curves strong
turns 2
run b02-06-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458172 --block 2 --position 6 --curves strong
run b02-07-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458172 --block 2 --position 7 --curves strong
turns 2
run b02-08-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458172 --block 2 --position 8 --curves strong
run b02-09-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458172 --block 2 --position 9 --curves strong
turns 2
run b02-10-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458172 --block 2 --position 10 --curves strong
run b02-11-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458172 --block 2 --position 11 --curves strong
turns 2
run b02-13-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458172 --block 2 --position 13 --curves strong
run b02-14-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458172 --block 2 --position 14 --curves strong
turns 2
run b02-15-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458172 --block 2 --position 15 --curves strong
run b02-16-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458172 --block 2 --position 16 --curves strong

# Block 3: one randomised pass, every run with seed 1845458173
turns 2
run b03-00-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458173 --block 3 --position 0 --curves strong
run b03-01-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458173 --block 3 --position 1 --curves strong
turns 3
run b03-02-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458173 --block 3 --position 2 --curves strong
run b03-07-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458173 --block 3 --position 7 --curves strong
run b03-08-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458173 --block 3 --position 8 --curves strong
turns 2
run b03-03-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458173 --block 3 --position 3 --curves strong
run b03-04-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458173 --block 3 --position 4 --curves strong
turns 2
run b03-05-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458173 --block 3 --position 5 --curves strong
run b03-06-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458173 --block 3 --position 6 --curves strong
turns 2
run b03-09-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458173 --block 3 --position 9 --curves strong
run b03-10-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458173 --block 3 --position 10 --curves strong
turns 2
run b03-11-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458173 --block 3 --position 11 --curves strong
run b03-12-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458173 --block 3 --position 12 --curves strong
turns 2
run b03-13-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458173 --block 3 --position 13 --curves strong
run b03-14-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458173 --block 3 --position 14 --curves strong
turns 2
run b03-15-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458173 --block 3 --position 15 --curves strong
run b03-16-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458173 --block 3 --position 16 --curves strong

# Block 4: one randomised pass, every run with seed 1845458174
turns 3
run b04-00-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458174 --block 4 --position 0 --curves strong
run b04-13-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458174 --block 4 --position 13 --curves strong
run b04-14-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458174 --block 4 --position 14 --curves strong
turns 2
run b04-01-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458174 --block 4 --position 1 --curves strong
run b04-02-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458174 --block 4 --position 2 --curves strong
turns 2
run b04-03-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458174 --block 4 --position 3 --curves strong
run b04-04-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458174 --block 4 --position 4 --curves strong
turns 2
run b04-05-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458174 --block 4 --position 5 --curves strong
run b04-06-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458174 --block 4 --position 6 --curves strong
turns 2
run b04-07-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458174 --block 4 --position 7 --curves strong
run b04-08-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458174 --block 4 --position 8 --curves strong
turns 2
run b04-09-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458174 --block 4 --position 9 --curves strong
run b04-10-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458174 --block 4 --position 10 --curves strong
turns 2
run b04-11-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458174 --block 4 --position 11 --curves strong
run b04-12-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458174 --block 4 --position 12 --curves strong
turns 2
run b04-15-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458174 --block 4 --position 15 --curves strong
run b04-16-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458174 --block 4 --position 16 --curves strong

# Block 5: one randomised pass, every run with seed 1845458175
turns 2
run b05-00-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458175 --block 5 --position 0 --curves strong
run b05-01-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1845458175 --block 5 --position 1 --curves strong
turns 3
run b05-02-single-w1-b2048 1 --backend single --transport none --settings shipped --batch-per-rank 2048 --seed 1845458175 --block 5 --position 2 --curves strong
run b05-07-ddp-gloo-w1-b2048 1 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458175 --block 5 --position 7 --curves strong
run b05-08-horovod-gloo-w1-b2048 1 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1845458175 --block 5 --position 8 --curves strong
turns 2
run b05-03-ddp-mpi-w1-b2048 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458175 --block 5 --position 3 --curves strong
run b05-04-horovod-mpi-w1-b2048 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 2048 --seed 1845458175 --block 5 --position 4 --curves strong
turns 2
run b05-05-horovod-mpi-w2-b1024 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458175 --block 5 --position 5 --curves strong
run b05-06-ddp-mpi-w2-b1024 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 1024 --seed 1845458175 --block 5 --position 6 --curves strong
turns 2
run b05-09-ddp-mpi-w8-b256 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458175 --block 5 --position 9 --curves strong
run b05-10-horovod-mpi-w8-b256 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 256 --seed 1845458175 --block 5 --position 10 --curves strong
turns 2
run b05-11-ddp-gloo-w2-b1024 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458175 --block 5 --position 11 --curves strong
run b05-12-horovod-gloo-w2-b1024 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 1024 --seed 1845458175 --block 5 --position 12 --curves strong
turns 2
run b05-13-horovod-gloo-w8-b256 8 --backend horovod --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458175 --block 5 --position 13 --curves strong
run b05-14-ddp-gloo-w8-b256 8 --backend ddp --transport gloo --settings shipped --batch-per-rank 256 --seed 1845458175 --block 5 --position 14 --curves strong
turns 2
run b05-15-horovod-mpi-w4-b512 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458175 --block 5 --position 15 --curves strong
run b05-16-ddp-mpi-w4-b512 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 512 --seed 1845458175 --block 5 --position 16 --curves strong
END_OF_RUNS
