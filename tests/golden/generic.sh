#!/bin/bash
#SBATCH --job-name=smoke-n002-b00
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=00:20:00
#SBATCH --exclusive
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --no-requeue
#
# Study 'smoke' on a Slurm cluster with four NVIDIA GPUs a node (site 'generic'; not run yet):
# block 0 at 2 node(s), 2 runs, about 4 min.
# Does a job at this site do all it should, from the look at the launch to complete logs?
#
# Written by `python -m slurm`; read it, edit it, submit it by hand from the repository root: sbatch THIS_FILE
# One job is one block: every framework and setting in a random but recorded order on the same nodes. Each line
# `run ID RANKS OPTIONS` below is one run: a fresh process group under srun, one log. A run whose log exists is skipped, and
# a failed run does not stop the others, unless its input was wrong (exit code 2). No run starts that cannot end before the job
# must. Slurm's warning before the time limit and `scancel --batch --signal=TERM JOB` end the current run, record that, and stop.
# Another Python, or no look at the launch beforehand: PYTHON=... PREFLIGHT=no sbatch THIS_FILE

give_up() {
  reason="refused: $1"
  echo "error: $1" >&2
  exit 2
}

# The counts: everything below derives from these
NODES=2
RANKS_PER_NODE=4
CPUS_PER_RANK=16  # as Slurm counts CPUs; each step says it again, because srun does not inherit it in Slurm 22.05 to 23.02
TOTAL=2  # runs in this script
LIMIT_S=180  # time limit of one run, seconds
LEAD_S=$((120 + 60))  # kept free at the end: --signal above, which may come a minute early
STUDY_DIR=results/smoke
JOB=n002-b00

# What the site needs before Python; `set -u` comes later, because module files use unset variables
VENV=.venv
if [ -z "${PYTHON:-}" ] && [ -d "$VENV/bin" ]; then
  VENV=$(cd "$VENV" && pwd)
  export PATH="$VENV/bin:$PATH"
fi
PYTHON=${PYTHON:-python}
export SLURM_EXPORT_ENV=ALL  # steps see what is exported here, also where sbatch was told --export=NONE

set -u -o pipefail

[ -f bench/__main__.py ] || give_up "no bench/ in $PWD; submit this script from the repository root"
[ -n "${SLURM_JOB_ID:-}" ] || give_up "this is not a Slurm job; submit it: sbatch $0"
[ "${SLURM_JOB_NUM_NODES:-$NODES}" = "$NODES" ] || give_up "the job has $SLURM_JOB_NUM_NODES nodes, these runs need $NODES"
for tool in sha256sum timeout srun "$PYTHON"; do
  command -v "$tool" >/dev/null || give_up "$tool is not found; see [setup] of the site, or PYTHON=... sbatch THIS_FILE"
done
[ ! -e "$STUDY_DIR/SHIPPED" ] || give_up "$STUDY_DIR comes with the project and is never added to; render with another --results"
mkdir -p "$STUDY_DIR/runs" "$STUDY_DIR/jobs" "$STUDY_DIR/calibration" || give_up "cannot write $STUDY_DIR"
mapfile -t HOSTS < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ "${#HOSTS[@]}" = "$NODES" ] || give_up "scontrol names ${#HOSTS[@]} hosts for '$SLURM_JOB_NODELIST', the job has $NODES"

# When the job must have ended, seconds since 1970. Slurm before 23.02 does not say: ask it, else assume the time asked for
END=${SLURM_JOB_END_TIME:-}
if [ -z "$END" ]; then END=$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null)" +%s 2>/dev/null); fi
case $END in '' | *[!0-9]*) END=$(($(date +%s) + 20 * 60)) ;; esac
if [ "$END" -le "$(date +%s)" ]; then END=$(($(date +%s) + 20 * 60)); fi

# Options of `python -m bench` that all runs share
BENCH=("$PYTHON" -m bench)
COMMON=(
  --study smoke
  --device cuda
  --threads 1
  --model resnet18
  --dataset digits
  --image-size 32
  --warmup-steps 5
  --windows 2
  --steps-per-window 5
  --max-lr 0.001
)

# The study as it was first run: the report takes margin and planned blocks from here, so it is never overwritten
if [ ! -e "$STUDY_DIR/study.toml" ]; then
  if ! cat 2>/dev/null >"$STUDY_DIR/study.toml.$SLURM_JOB_ID.tmp" <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/nccl", "horovod/nccl"]
settings = ["shipped"]
scaling = ["weak"]
world_sizes = [1, 4, 8]
blocks = 2
seed = 2025
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "a Slurm cluster with four NVIDIA GPUs a node"

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
steps_per_window = 5
max_lr = 0.001
END_OF_STUDY
  then
    rm -f "$STUDY_DIR/study.toml.$SLURM_JOB_ID.tmp"
    give_up "$STUDY_DIR/study.toml cannot be written; is the disk full?"
  fi
  mv -n "$STUDY_DIR/study.toml.$SLURM_JOB_ID.tmp" "$STUDY_DIR/study.toml"
fi

# What became of this job, for `python -m slurm status` where Slurm keeps no account of it
RESTART=${SLURM_RESTART_COUNT:-0}  # a requeued job keeps its id
tell() {  # FORMAT VALUES...: one line of JSON
  # shellcheck disable=SC2059  # the formats are those below
  printf "$@" >>"$STUDY_DIR/jobs/$JOB.jsonl"
}
tell '{"event": "begin", "job": "%s", "restart": %d, "nodes": "%s", "time": %d}\n' \
  "$SLURM_JOB_ID" "$RESTART" "$SLURM_JOB_NODELIST" "$(date +%s)"

running=()       # processes of the current step, or of one step on each node
stopped=""       # the signal that asked us to stop
reason=complete  # why the job ends
started=0
begun=0          # runs that really began
failed=0
left=0           # runs for the next job
longest_s=0      # longest run so far, seconds

stop() {  # SIGNAL: end the current step; the ranks hear of it from srun alone, never from Slurm
  if [ -n "$stopped" ]; then return; fi
  stopped=$1
  reason="stopped by $1"
  if [ "${#running[@]}" -gt 0 ]; then kill -TERM "${running[@]}" 2>/dev/null; fi
}
trap 'stop USR1' USR1
trap 'stop TERM' TERM

finish() {
  local code=$?
  tell '{"event": "end", "job": "%s", "restart": %d, "reason": "%s", "failed": %d, "left": %d, "code": %d}\n' \
    "$SLURM_JOB_ID" "$RESTART" "${reason//[\"\\]/}" "$failed" "$left" "$code"
}
trap finish EXIT

# Submitted twice, by hand or where login nodes do not share locks: whoever began first goes on, lest two write one log
before=$(sed -n -e '/"begin", "job": "'"$SLURM_JOB_ID"'"/q' -e 's/.*"begin", "job": "\([0-9]*\)".*/\1/p' "$STUDY_DIR/jobs/$JOB.jsonl")
for other in $before; do
  if [ "$(squeue -h -j "$other" -o %T 2>/dev/null)" = RUNNING ]; then give_up "job $other is at work on the same runs"; fi
done

# One step, on the first hosts, as many as its ranks fill: a pair must have the same ones. In the background, because a trap waits for
# a foreground command to end; without input, because srun would eat what the shell reads next.
# `timeout` ends ranks that hang, --kill-on-bad-exit all of them when one fails.
step() {  # LIMIT_S RANKS OUT COMMAND...
  local limit_s=$1 ranks=$2 out=$3
  oom_kills_before=$(oom_kills)
  local per_node=$((ranks < RANKS_PER_NODE ? ranks : RANKS_PER_NODE)) IFS=,
  local nodes=$(((ranks + per_node - 1) / per_node))
  shift 3
  timeout --foreground -k 30 "$limit_s" \
    srun --nodes="$nodes" --nodelist="${HOSTS[*]:0:nodes}" --ntasks="$ranks" --ntasks-per-node="$per_node" \
    --cpus-per-task="$CPUS_PER_RANK" --kill-on-bad-exit=1 --gpus-per-node=4 --mpi=pmix "$@" </dev/null >"$out" 2>&1 &
  running=($!)
}

step_on() {  # NODE_INDEX OUT COMMAND...: one process on one node, beside those on the others
  local index=$1 out=$2
  shift 2
  timeout --foreground -k 30 "$LIMIT_S" \
    srun --nodes=1 --ntasks=1 --nodelist="${HOSTS[index]}" \
    --cpus-per-task="$CPUS_PER_RANK" --kill-on-bad-exit=1 --gpus-per-node=4 --mpi=pmix "$@" </dev/null >"$out" 2>&1 &
  running[index]=$!
}

await() {  # PID: until it has ended; its exit code is in $code
  if [ -n "$stopped" ]; then kill -TERM "$1" 2>/dev/null; fi  # the signal came before there was a pid
  while wait "$1"; code=$?; kill -0 "$1" 2>/dev/null; do :; done  # a trap ends `wait` early: wait again
}

# What a run and its launcher printed that tells how it ended, as a JSON array: lines on memory and lost nodes, lines on errors,
# and the last one. A few of each, and printable characters only: a run may print anything.
said() {  # OUT
  if [ ! -e "$1" ]; then return; fi
  tr '\r\t' '\n ' <"$1" | LC_ALL=C tr -c '\n -~' '?' | cut -c 1-300 | awk '
    !NF || seen[$0]++ { next }
    { last = $0; text = tolower($0) }
    text ~ /memory|oom.kill|bad_alloc|node.fail|lost communication/ { if (grave++ < 8) { print; last = "" } next }
    text ~ /error|exception|killed|signal|exit code|process name|process rank|tasks? [0-9]/ { if (telling++ < 8) { print; last = "" } }
    END { if (last != "") print last }' | sed 's/[\\"]/\\&/g; s/.*/"&"/' | paste -s -d , -
}

# Processes that this machine's kernel has killed for lack of memory since it started, if it counts them
oom_kills() { awk '$1 == "oom_kill" { print $2 }' /proc/vmstat 2>/dev/null; }
oom_kills_before=""

# The launcher's view goes to the log's end, sealed: its last key is the SHA-256 of every byte before `, "sha256": "` of its own line, so
# that a later change shows. A line torn by a kill is closed first. No log yet: this line makes one. Fails where it cannot be written.
record() {  # LOG OUT CODE WALL_S STOPPED: the last is what asked us to stop, if anything did
  local interrupted=false timed_out=false words="" gap="" oom_kills_now line digest
  if [ "$3" != 0 ] && [ -n "$5" ]; then interrupted=true; fi
  if [ "$4" -ge "$LIMIT_S" ] && [ "$interrupted" = false ]; then
    case $3 in 124 | 137) timed_out=true ;; esac
  fi
  if [ "$3" != 0 ] || ! is_ok "$1"; then words=$(said "$2"); fi
  oom_kills_now=$(oom_kills)
  line=$(printf '{"event": "exit", "code": %d, "timed_out": %s, "limit_s": %d, "interrupted": %s, "wall_s": %d, "oom_kills": %d, "said": [%s]' \
    "$3" "$timed_out" "$LIMIT_S" "$interrupted" "$4" $((${oom_kills_now:-0} - ${oom_kills_before:-${oom_kills_now:-0}})) "$words")
  if [ -s "$1" ] && [ "$(tail -c 1 "$1" | wc -l)" = 0 ]; then gap=$'\n'; fi
  digest=$({ if [ -e "$1" ]; then cat "$1"; fi && printf '%s%s' "$gap" "$line"; } | sha256sum)
  { printf '%s%s, "sha256": "%s"}\n' "$gap" "$line" "${digest%% *}" >>"$1"; } 2>/dev/null
}

# After a run that went wrong: a full disk would fail all others alike
has_room() {
  local probe="$STUDY_DIR/runs/.room.$$" code
  { head -c 1048576 /dev/zero >"$probe"; } 2>/dev/null
  code=$?
  rm -f "$probe"
  return "$code"
}

is_ok() {  # LOG: only the log proves it, by a whole line; launchers have ended with 0 where they could not even start the ranks
  [ -e "$1" ] && grep -Eq '^\{"event": "end", "status": "ok"[^{}]*(\{[^{}]*\}[^{}]*)*\}$' "$1"
}

full() {  # LOG
  give_up "$1 cannot be written: no room in $STUDY_DIR; make some, then submit again"
}

has_time() {  # whether another run can end before the job must: as long as the longest so far and half as much again
  local need_s=$((longest_s * 3 / 2 + 10))
  if [ "$longest_s" = 0 ] || [ "$need_s" -gt "$LIMIT_S" ]; then need_s=$LIMIT_S; fi
  [ $((END - $(date +%s) - LEAD_S)) -ge "$need_s" ]
}

# A plain process on every node at once, before and after: the same nodes' baseline, slow nodes and drift
calibrate() {  # WHEN
  local index began=$SECONDS name logs=()
  if [ -n "$stopped" ] || ! has_time; then
    echo "calibration at the $1: no time left"
    tell '{"event": "calibration", "job": "%s", "restart": %d, "when": "%s", "reason": "no time left"}\n' \
      "$SLURM_JOB_ID" "$RESTART" "$1"
    return
  fi
  echo "calibration at the $1, on ${#HOSTS[@]} node(s)"
  running=()
  oom_kills_before=$(oom_kills)
  for index in "${!HOSTS[@]}"; do
    name="$STUDY_DIR/calibration/$JOB-$SLURM_JOB_ID-$RESTART-$1-${HOSTS[index]}"
    logs[index]="$name.jsonl"
    step_on "$index" "$name.out" \
      "${BENCH[@]}" "${COMMON[@]}" --backend single --batch-per-rank 8 --world-size 1 --seed 2025 --block 0 --log-path "$name.jsonl"
  done
  for index in "${!HOSTS[@]}"; do
    await "${running[index]}"
    record "${logs[index]}" "${logs[index]%.jsonl}.out" "$code" $((SECONDS - began)) "$stopped"
    tell '{"event": "calibration", "job": "%s", "restart": %d, "when": "%s", "node": "%s", "log": "%s"}\n' \
      "$SLURM_JOB_ID" "$RESTART" "$1" "${HOSTS[index]}" "${logs[index]##*/}"
    if ! is_ok "${logs[index]}"; then echo "calibration at the $1 on ${HOSTS[index]}: failed, exit code $code"; fi
  done
  running=()
}

set_aside() {  # ID: a requeued job does again what its last start did not finish
  local n=1 end
  while [ -e "$STUDY_DIR/runs/$1.attempt-$n.jsonl" ] || [ -e "$STUDY_DIR/runs/$1.attempt-$n.out" ]; do n=$((n + 1)); done
  for end in jsonl out; do
    if [ -e "$STUDY_DIR/runs/$1.$end" ]; then mv "$STUDY_DIR/runs/$1.$end" "$STUDY_DIR/runs/$1.attempt-$n.$end"; fi
  done
}

run() {  # ID RANKS OPTIONS...
  local id=$1 ranks=$2 log="$STUDY_DIR/runs/$1.jsonl" out="$STUDY_DIR/runs/$1.out"
  local began=$SECONDS
  shift 2
  started=$((started + 1))
  if is_ok "$log"; then
    echo "[$started/$TOTAL] $id: done before, skipped"
    return
  fi
  if [ -e "$log" ] && [ "$RESTART" = 0 ]; then
    failed=$((failed + 1))
    echo "[$started/$TOTAL] $id: its log exists but is not ok; rename it to do the run again ('python -m slurm submit' does)"
    return
  fi
  if [ -n "$stopped" ] || ! has_time; then
    left=$((left + 1))
    if [ "$reason" = complete ]; then reason="no time for more"; fi
    echo "[$started/$TOTAL] $id: left for the next job, $reason"
    return
  fi
  if [ -e "$log" ]; then set_aside "$id"; fi
  begun=$((begun + 1))
  echo "[$started/$TOTAL] $id"
  step "$LIMIT_S" "$ranks" "$out" "${BENCH[@]}" "${COMMON[@]}" --world-size "$ranks" "$@" --log-path "$log"
  await "${running[0]}"
  running=()
  record "$log" "$out" "$code" $((SECONDS - began)) "$stopped" || full "$log"
  if [ $((SECONDS - began)) -gt "$longest_s" ]; then longest_s=$((SECONDS - began)); fi
  if [ "$code" != 0 ] || ! is_ok "$log"; then
    has_room || full "$log"
    if [ -n "$stopped" ]; then left=$((left + 1)); else failed=$((failed + 1)); fi
    echo "[$started/$TOTAL] $id: exit code $code after $((SECONDS - began)) s, see $out"
    if grep -q 'task.*: Exited with exit code 2$' "$out"; then code=2; fi  # srun tells of the rank that it ended itself
    # wrong input: all runs share it. Not a wrong world, which ranks also call it when their peers come late
    if [ "$code" = 2 ] && ! grep -q '"type": "WrongWorld"' "$log"; then give_up "$id: $(grep -m 1 '^error: ' "$out" | cut -c 8-)"; fi
  fi
}

# Look before the hours are spent: the same launch, all ranks, every transport once. It refuses a wrong world.
preflight() {  # NAME CELLS [env NAME=VALUE...]
  local name=$1 cells=$2 out="$STUDY_DIR/jobs/$JOB-$SLURM_JOB_ID-$RESTART-$1.out"
  shift 2
  if [ "${PREFLIGHT:-yes}" != yes ]; then return; fi
  echo "$name on 8 rank(s)"
  step 300 8 "$out" "$@" "${BENCH[@]}" doctor --world-size 8 \
    --threads 1 --dataset digits --cells="$cells" --rendezvous-dir "$STUDY_DIR/jobs"
  await "${running[0]}"
  running=()
  # an exit code of 0 is not enough: the doctor's last line must be there
  if [ -z "$stopped" ] && { [ "$code" != 0 ] || ! grep -q '^-- .* 0 failure' "$out"; }; then
    grep '^failure \|[Ee]rror: ' "$out" >&2
    give_up "the $name ended with exit code $code, see $out"
  fi
}
preflight preflight ddp/nccl,horovod/nccl

calibrate start

# Block 0: one randomised pass, every run with seed 2025
run b00-03-horovod-nccl-w8-b8 8 --backend horovod --transport nccl --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 3 --curves weak
run b00-06-ddp-nccl-w8-b8 8 --backend ddp --transport nccl --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 6 --curves weak

calibrate end

echo "$reason: $TOTAL runs, $failed failed, $left left for the next job"
[ "$failed" = 0 ] && [ "$left" = 0 ]
