#!/bin/bash
#SBATCH --job-name=smoke-n002-b00
#SBATCH --account=ACCOUNT
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --time=00:20:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --no-requeue
#
# Study 'smoke' on LUMI-G, MI250X nodes (site 'lumi-g'; from documentation (October 2024, lumi-userguide at 6c3a26c), not run there):
# block 0 at 2 node(s), 2 runs, about 4 min.
# Does a job at this site do all it should, from the look at the launch to complete logs?
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
# Note: every rank sees all eight GPUs and takes the one of its local rank: do not set ROCR_VISIBLE_DEVICES as well
# Note: the masks give rank i the seven cores next to GPU i; the first core of each group is the system's
# Note: Horovod must be built for ROCm and RCCL; this project has not tried that

# What the site needs before Python
module load LUMI
module load partition/G
export MIOPEN_USER_DB_PATH="/tmp/$USER-miopen-$SLURM_JOB_ID"
export MIOPEN_CUSTOM_CACHE_DIR="$MIOPEN_USER_DB_PATH"
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export SLURM_EXPORT_ENV=ALL # steps see what is exported here, also where sbatch was told --export=NONE
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export GLOO_SOCKET_IFNAME=hsn0
export HOROVOD_GLOO_IFACE=hsn0
export NCCL_NET_GDR_LEVEL=3

[ -f slurm/driver/__main__.py ] || { echo "error: no slurm/ in $PWD; submit this script from the repository root" >&2; exit 2; }
command -v "$PYTHON" >/dev/null || { echo "error: $PYTHON is not found; see [setup] of the site, or PYTHON=... sbatch THIS_FILE" >&2; exit 2; }

# The study as it was first run: it is kept beside the logs, where the report takes margin and planned blocks from
{ IFS= read -r -d '' STUDY || true; } <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/nccl", "horovod/nccl"]
settings = "shipped"
scaling = ["weak"]
world_sizes = [1, 8, 16]
blocks = 2
max_blocks = 20
turns = true
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "LUMI-G, MI250X nodes"

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
  --study-sha256 88eb127854c4ab2d2d86b06997d3e8faf82a56c2c02f6bbc66d830da2916d8c9
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
  --launch-args='--kill-on-bad-exit=1 --gpus-per-node=8 --cpu-bind=mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000'
  --job=n002-b00
  --nodes=2
  --ranks-per-node=8
  --cpus-per-rank=7 # as Slurm counts CPUs
  --minutes=20
  --lead-s=180 # kept free at the end: --signal above, which may come a minute early
  --cells='ddp/nccl horovod/nccl' # tried before the first run
  --preflight='--threads 1 --dataset digits'
  --calibration='--backend single --batch-per-rank 8 --world-size 1 --seed 0 --block 0 --alone' # a plain process on every GPU, before and after
)

exec "$PYTHON" -m slurm.driver "${JOB[@]}" -- "${COMMON[@]}" <<'END_OF_RUNS'

# Block 0: one randomised pass, every run with seed 0
turns 2 5+6
run b00-05-ddp-nccl-w16-b8 16 --backend ddp --transport nccl --batch-per-rank 8 --seed 0 --block 0 --position 5 --curves weak
run b00-06-horovod-nccl-w16-b8 16 --backend horovod --transport nccl --batch-per-rank 8 --seed 0 --block 0 --position 6 --curves weak
END_OF_RUNS
