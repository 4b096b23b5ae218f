#!/bin/bash
#
# Study 'local-transports' on this machine (site 'local'; not run yet):
# 20 runs.
# Does the answer to DDP or Horovod depend on the wire, MPI or Gloo, and on how much there is to compute for each exchange?
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
seed = 286593066  # drawn at the first run
# Framework x transport on one machine: 60 runs and more until it is settled.
name = "local-transports"
question = "Does the answer to DDP or Horovod depend on the wire, MPI or Gloo, and on how much there is to compute for each exchange?"

cells = ["single", "ddp/mpi", "horovod/mpi", "ddp/gloo", "horovod/gloo"]
settings = "shipped"
scaling = ["batch"]
blocks = 6
margin = 0.02
time_limit_s = 180
expected_run_s = 25                            # on two cores; for an estimate before the first run has ended

[batch]
batch_per_rank = [4, 16]                       # the smaller the batch, the larger the share of communication
world_sizes = [2]

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
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study local-transports
  --study-sha256 13b878d8fe468e20f63d8ff1b97a2c1377ed2927e80fb56e5c6c7d28448aa34a
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
  --study-dir=results/local-transports
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=mpirun
  --launch-args='--bind-to none --map-by :OVERSUBSCRIBE'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 4: one randomised pass, every run with seed 286593070
turns 2
run b04-00-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 286593070 --block 4 --position 0 --curves batch
run b04-01-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 286593070 --block 4 --position 1 --curves batch
turns 3
run b04-02-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 286593070 --block 4 --position 2 --curves batch
run b04-03-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 286593070 --block 4 --position 3 --curves batch
run b04-08-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 286593070 --block 4 --position 8 --curves batch
turns 2
run b04-04-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 286593070 --block 4 --position 4 --curves batch
run b04-05-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 286593070 --block 4 --position 5 --curves batch
turns 3
run b04-06-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 286593070 --block 4 --position 6 --curves batch
run b04-07-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 286593070 --block 4 --position 7 --curves batch
run b04-09-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 286593070 --block 4 --position 9 --curves batch

# Block 5: one randomised pass, every run with seed 286593071
turns 3
run b05-00-single-w1-b4 1 --backend single --transport none --settings shipped --batch-per-rank 4 --seed 286593071 --block 5 --position 0 --curves batch
run b05-05-ddp-gloo-w2-b4 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 4 --seed 286593071 --block 5 --position 5 --curves batch
run b05-06-horovod-gloo-w2-b4 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 4 --seed 286593071 --block 5 --position 6 --curves batch
turns 2
run b05-01-ddp-mpi-w2-b4 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 4 --seed 286593071 --block 5 --position 1 --curves batch
run b05-02-horovod-mpi-w2-b4 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 4 --seed 286593071 --block 5 --position 2 --curves batch
turns 2
run b05-03-horovod-mpi-w2-b16 2 --backend horovod --transport mpi --settings shipped --batch-per-rank 16 --seed 286593071 --block 5 --position 3 --curves batch
run b05-04-ddp-mpi-w2-b16 2 --backend ddp --transport mpi --settings shipped --batch-per-rank 16 --seed 286593071 --block 5 --position 4 --curves batch
turns 3
run b05-07-single-w1-b16 1 --backend single --transport none --settings shipped --batch-per-rank 16 --seed 286593071 --block 5 --position 7 --curves batch
run b05-08-horovod-gloo-w2-b16 2 --backend horovod --transport gloo --settings shipped --batch-per-rank 16 --seed 286593071 --block 5 --position 8 --curves batch
run b05-09-ddp-gloo-w2-b16 2 --backend ddp --transport gloo --settings shipped --batch-per-rank 16 --seed 286593071 --block 5 --position 9 --curves batch
END_OF_RUNS
