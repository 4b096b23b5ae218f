#!/bin/bash
#SBATCH --job-name=weak-report
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --no-requeue
#
# Study 'weak' on four emulated nodes on one machine (site 'testcluster'; verified on 2026-11-21):
# the report on what its jobs measured, however they end; planned runs that are missing are listed as gaps.
#
# Written by `python -m slurm`; submit it by hand from the repository root: sbatch --dependency=afterany:JOB:JOB THIS_FILE
# Another Python: PYTHON=... sbatch THIS_FILE

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

exec "$PYTHON" -m slurm.driver --report --study-dir=results/weak --python="$PYTHON"
