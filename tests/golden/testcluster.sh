#!/bin/bash
#SBATCH --job-name=smoke-n002-launch00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:15:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@30
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --requeue
#
# Study 'smoke' on four emulated nodes on one machine (site 'testcluster'; verified on 2026-11-21):
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

# What the site needs before Python
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export SLURM_EXPORT_ENV=ALL # steps see what is exported here, also where sbatch was told --export=NONE
export SLURM_PMIX_FENCE=ring
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

[ -f slurm/driver/__main__.py ] || { echo "error: no slurm/ in $PWD; submit this script from the repository root" >&2; exit 2; }
command -v "$PYTHON" >/dev/null || { echo "error: $PYTHON is not found; see [setup] of the site, or PYTHON=... sbatch THIS_FILE" >&2; exit 2; }

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned launches from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/gloo", "horovod/gloo"]
scaling = ["weak"]
world_sizes = [1, 2, 4]
launches = 2
max_launches = 20
turns = true
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "four emulated nodes on one machine"

[weak]
batch_per_rank = 8

[run]
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
  --study-sha256 5faf1290a3a6964a793781561705327e3710ab2eb1e54b7fd91b9e5f30288d2b
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
  --launch-args='--kill-on-bad-exit=1 --mpi=pmix'
  --job=n002-launch00
  --nodes=2
  --ranks-per-node=2
  --cpus-per-rank=1 # as Slurm counts CPUs
  --minutes=15
  --lead-s=90 # kept free at the end: --signal above, which may come a minute early
  --requeue # the same job again for what is left, three times at most
  --cells='ddp/gloo horovod/gloo' # tried before the first run
  --preflight='--threads 1 --dataset digits'
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Launch 0: one randomised pass, every run with seed 0
turns 2
run launch00-05-ddp-gloo-w4-b8 4 --backend ddp --transport gloo --batch-per-rank 8 --seed 0 --launch 0 --position 5 --curves weak
run launch00-06-horovod-gloo-w4-b8 4 --backend horovod --transport gloo --batch-per-rank 8 --seed 0 --launch 0 --position 6 --curves weak
END_OF_RUNS
