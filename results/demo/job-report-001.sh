#!/bin/bash
#SBATCH --job-name=demo-report
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --no-requeue
#
# Study 'demo' on four emulated nodes on one machine, one rank each (site 'demo'; last run there on 2026-11-21):
# the report on what its jobs measured, however they end; planned runs that are missing are listed as gaps.
#
# Written by `python -m slurm`; submit it by hand from the repository root: sbatch --dependency=afterany:JOB:JOB THIS_FILE
# Another Python: PYTHON=... sbatch THIS_FILE

give_up() {
  reason="refused: $1"
  echo "error: $1" >&2
  exit 2
}

STUDY_DIR=results/demo
JOB=report

# What the site needs before Python; `set -u` comes later, because module files use unset variables
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export SLURM_EXPORT_ENV=ALL  # steps see what is exported here, also where sbatch was told --export=NONE
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

set -u

[ -f plots/__main__.py ] || give_up "no plots/ in $PWD; submit this script from the repository root"
[ -n "${SLURM_JOB_ID:-}" ] || give_up "this is not a Slurm job; on this machine: python -m plots report $STUDY_DIR"
mkdir -p "$STUDY_DIR/jobs" || give_up "cannot write $STUDY_DIR"

# What became of this job, for `python -m slurm status` where Slurm keeps no account of it
RESTART=${SLURM_RESTART_COUNT:-0}  # a requeued job keeps its id
tell() {  # FORMAT VALUES...: one line of JSON
  # shellcheck disable=SC2059  # the formats are those below
  printf "$@" >>"$STUDY_DIR/jobs/$JOB.jsonl"
}
tell '{"event": "begin", "job": "%s", "restart": %d, "nodes": "%s", "time": %d}\n' \
  "$SLURM_JOB_ID" "$RESTART" "$SLURM_JOB_NODELIST" "$(date +%s)"

reason=complete
"$PYTHON" -m plots report "$STUDY_DIR" </dev/null
code=$?
if [ "$code" != 0 ]; then reason="no report, exit code $code"; fi
tell '{"event": "end", "job": "%s", "restart": %d, "reason": "%s", "code": %d}\n' "$SLURM_JOB_ID" "$RESTART" "$reason" "$code"
exit "$code"
