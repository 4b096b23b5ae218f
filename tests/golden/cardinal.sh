#!/bin/bash
#SBATCH --job-name=smoke-n002-launch00
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=24
#SBATCH --gpus-per-node=4
#SBATCH --time=00:15:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --no-requeue
#
# Study 'smoke' on OSC Cardinal, H100 nodes (site 'cardinal'; not verified):
# launch 0 at 2 node(s), 2 runs.
# Does a job at this site do all it should, from the look at the launch to complete logs?
#
# Written by `python -m slurm`; read it, edit it, submit it by hand from the repository root: sbatch THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under srun, one log. Runs below
# `turns N` are started together and take turns, window by window. Runs below `apart N REASON` are started one by one.
# Edit or delete lines as you like. A run whose log exists is not started again. A failed run does not stop other launches,
# unless its input was wrong.
# One job is one launch: every framework and setting in a random but recorded order on the same nodes.
# No run starts that cannot end before the job must. Slurm's warning before the time limit and
# `scancel --batch --signal=TERM JOB` end the current run, record that, and stop.
# Another Python, or no look at the launch beforehand: PYTHON=... PREFLIGHT=no sbatch THIS_FILE
# Note: cells over MPI need the MPI that Horovod was built with, and its plug-in: see `srun --mpi=list` and write mpi

# What the site needs before Python
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export SLURM_EXPORT_ENV=ALL # steps see what is exported here, also where sbatch was told --export=NONE

[ -f slurm/driver/__main__.py ] || { echo "error: no slurm/ in $PWD; submit this script from the repository root" >&2; exit 2; }
command -v "$PYTHON" >/dev/null || { echo "error: $PYTHON is not found; see [setup] of the site, or PYTHON=... sbatch THIS_FILE" >&2; exit 2; }

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned launches from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/nccl", "horovod/nccl"]
scaling = ["weak"]
world_sizes = [1, 4, 8]
launches = 2
max_launches = 20
turns = true
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "OSC Cardinal, H100 nodes"

[weak]
batch_per_rank = 8

[run]
device = "cuda"
threads = 1
model = "resnet18"
dataset = "digits"
image_size = 32
warmup_steps = 5
windows = 2
lead_in_steps = 1
steps_per_window = 5
max_lr = 0.001
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study smoke
  --study-sha256 97751ec64b8f2447c5e02383e3f5456494d1b4687de0e1f8ebdc26a7516d6b3f
  --device cuda
  --threads 1
  --model resnet18
  --dataset digits
  --image-size 32
  --warmup-steps 5
  --windows 2
  --lead-in-steps 1
  --steps-per-window 5
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/smoke
  --study="$STUDY"
  --limit-s=180 # of one run, seconds
  --python="$PYTHON"
  --launcher=srun
  --launch-args='--kill-on-bad-exit=1 --gpus-per-node=4'
  --job=n002-launch00
  --nodes=2
  --ranks-per-node=4
  --cpus-per-rank=24 # as Slurm counts CPUs
  --minutes=15
  --lead-s=180 # kept free at the end: --signal above, which may come a minute early
  --cells='ddp/nccl horovod/nccl' # tried before the first run
  --preflight='--threads 1 --dataset digits'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Launch 0: one randomised pass, every run with seed 0
turns 2
run launch00-03-ddp-nccl-w8-b8 8 --backend ddp --transport nccl --batch-per-rank 8 --seed 0 --launch 0 --position 3 --curves weak
run launch00-04-horovod-nccl-w8-b8 8 --backend horovod --transport nccl --batch-per-rank 8 --seed 0 --launch 0 --position 4 --curves weak
END_OF_RUNS
