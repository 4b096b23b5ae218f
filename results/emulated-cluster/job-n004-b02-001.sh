#!/bin/bash
#SBATCH --job-name=emulated-cluster-n004-b02
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:20:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@30
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --requeue
#
# Study 'emulated-cluster' on four emulated nodes on one machine, one rank each, links of 1 Gbit/s (site 'shaped'; last run there on 2026-11-23):
# block 2 at 4 node(s), 4 runs, about 4 min.
# How do the exchanges of DDP and Horovod scale from one to four nodes, when accelerators compute?
#
# Written by `python -m slurm`; read it, edit it, submit it by hand from the repository root: sbatch THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under srun, one log. Runs below
# `turns N` are started together and take turns, window by window; where memory has no room for all, those at positions
# A and B stay together where `A+B` says so. Runs below `apart N REASON` are started one by one. Edit or delete lines as
# you like. A run whose log exists is not started again. A failed run does not stop other launches, unless its input was wrong.
# One job is one block: every framework and setting in a random but recorded order on the same nodes.
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

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned blocks from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
seed = 1119139855  # drawn at the first run
# Study 'emulated-cluster' as it was fitted to its site: counts, transports and devices filled in.
name = "emulated-cluster"
question = "How do the exchanges of DDP and Horovod scale from one to four nodes, when accelerators compute?"
cells = ["single", "ddp/gloo", "horovod/gloo"]
settings = ["shipped"]
scaling = ["weak", "strong"]
world_sizes = [1, 2, 4]
blocks = 6
max_blocks = 20
turns = true
margin = 0.02
time_limit_s = 240
expected_run_s = 30
site = "four emulated nodes on one machine, one rank each, links of 1 Gbit/s"

[weak]
batch_per_rank = 2048

[strong]
global_batch = 2048

[run]
threads = 1
model = "resnet50"
image_size = 32
emulate = "bench/instrument/timelines/resnet50-p100-32px.json"
warmup_steps = 4
windows = 6
lead_in_steps = 1
steps_per_window = 2
max_lr = 0.001
END_OF_STUDY

# Options of `python -m bench` that all runs share
COMMON=(
  --study emulated-cluster
  --study-sha256 4286dd0103b33ede6c3314b6cb202033202d4ae8fb6fe8ebfa8238279add2aa6
  --threads 1
  --model resnet50
  --image-size 32
  --emulate bench/instrument/timelines/resnet50-p100-32px.json
  --warmup-steps 4
  --windows 6
  --lead-in-steps 1
  --steps-per-window 2
  --max-lr 0.001
)

# The job and how its site starts ranks; `python -m slurm.driver --help` explains each option
JOB=(
  --study-dir=results/mine/emulated-cluster
  --study="$STUDY"
  --limit-s=240 # of one run, seconds
  --python="$PYTHON"
  --launcher=srun
  --launch-args='--kill-on-bad-exit=1 --mpi=pmix'
  --job=n004-b02
  --nodes=4
  --ranks-per-node=1
  --cpus-per-rank=1 # as Slurm counts CPUs
  --minutes=20
  --lead-s=90 # kept free at the end: --signal above, which may come a minute early
  --requeue # the same job again for what is left, three times at most
  --cells='ddp/gloo horovod/gloo' # tried before the first run
  --preflight='--threads 1 --dataset synthetic'
  --calibration='--backend single --batch-per-rank 2048 --world-size 1 --seed 1119139857 --block 2' # a plain process on every node, before and after
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 2: one randomised pass, every run with seed 1119139857
turns 2 0+1
run b02-00-ddp-gloo-w4-b512 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 512 --seed 1119139857 --block 2 --position 0 --curves strong
run b02-01-horovod-gloo-w4-b512 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 512 --seed 1119139857 --block 2 --position 1 --curves strong
turns 2 5+6
run b02-05-ddp-gloo-w4-b2048 4 --backend ddp --transport gloo --settings shipped --batch-per-rank 2048 --seed 1119139857 --block 2 --position 5 --curves weak
run b02-06-horovod-gloo-w4-b2048 4 --backend horovod --transport gloo --settings shipped --batch-per-rank 2048 --seed 1119139857 --block 2 --position 6 --curves weak
END_OF_RUNS
