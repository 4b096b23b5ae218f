#!/usr/bin/env bash
# Study 'smoke' on the hosts of hosts.txt (site 'hostfile'): 14 runs.
# Does a job at this site do all it should, from the look at the launch to complete logs?
#
# Written by `python -m slurm`; read it, edit it, run it by hand from the repository root: bash THIS_FILE
# Each line `run ID RANKS OPTIONS` below is one run: a fresh process group under mpirun, one log. A run whose log exists is
# skipped, and a failed run does not stop the others, unless its input was wrong (exit code 2). Ctrl-C or SIGTERM ends the current run, records that, and stops.
# Other programs than those found: PYTHON=... MPIRUN=... bash THIS_FILE

set -u -o pipefail

STUDY_DIR=results/smoke
LIMIT_S=180  # time limit of one run, seconds
TOTAL=14  # runs in this script

if [ -z "${PYTHON:-}" ] && [ -d .venv/bin ]; then PATH="$PWD/.venv/bin:$PATH"; fi
PYTHON=${PYTHON:-python}
MPIRUN=${MPIRUN:-mpirun}

# What the site asks for; the same for every run

# Options of `python -m bench` that all runs share
COMMON=(
  --study smoke
  --threads 1
  --model resnet18
  --dataset digits
  --image-size 32
  --warmup-steps 5
  --windows 2
  --steps-per-window 5
  --max-lr 0.001
)

give_up() {
  echo "error: $1" >&2
  exit 2
}

[ -f bench/__main__.py ] || give_up "no bench/ in $PWD; run this script from the repository root"
for tool in flock setsid sha256sum timeout pkill; do
  command -v "$tool" >/dev/null || give_up "$tool is not installed; it comes with util-linux, coreutils or procps"
done
for tool in "$PYTHON" "$MPIRUN"; do
  command -v "$tool" >/dev/null || give_up "$tool is not found; run 'make setup' or say where it is: PYTHON=... MPIRUN=..."
done
[ ! -e "$STUDY_DIR/SHIPPED" ] || give_up "$STUDY_DIR comes with the project and is never added to; render with another --results"
if [ -e "$STUDY_DIR/study.toml" ] && [ ! -e "$STUDY_DIR/jobs.jsonl" ]; then
  give_up "$STUDY_DIR/jobs.jsonl is gone, and with it the lock of a job that may still be running; if none is: touch $STUDY_DIR/jobs.jsonl"
fi
mkdir -p "$STUDY_DIR/runs" || give_up "cannot write $STUDY_DIR"

# One job of a study at a time. The kernel frees the lock with the last process that has it open; mpirun inherits it on
# purpose, so that a run which outlives a killed script still counts. `python -m slurm run` hands its own lock down.
if [ -n "${STUDY_LOCK_FD:-}" ]; then exec 9<&"$STUDY_LOCK_FD"; else exec 9>>"$STUDY_DIR/jobs.jsonl"; fi
flock -w 1 9 || give_up "another job of this study is running; wait for it or stop it"

# The study as it was first run: the report takes margin and planned blocks from here, so it is never overwritten
if [ ! -e "$STUDY_DIR/study.toml" ]; then
  if ! cat 2>/dev/null >"$STUDY_DIR/study.toml.tmp" <<'END_OF_STUDY'
# Study 'smoke' as it was fitted to its site: counts, transports and devices filled in.
name = "smoke"
question = "Does a job at this site do all it should, from the look at the launch to complete logs?"
cells = ["single", "ddp/mpi", "horovod/mpi"]
settings = ["shipped"]
scaling = ["weak"]
world_sizes = [1, 4, 8]
blocks = 2
seed = 2025
margin = 0.02
time_limit_s = 180
expected_run_s = 45
site = "the hosts of hosts.txt"

[weak]
batch_per_rank = 8

[run]
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
    rm -f "$STUDY_DIR/study.toml.tmp"
    give_up "$STUDY_DIR/study.toml cannot be written; is the disk full?"
  fi
  mv "$STUDY_DIR/study.toml.tmp" "$STUDY_DIR/study.toml"
fi

pid=""      # the current run
stopped=""  # the exit code once a signal asked us to stop
started=0
failed=0

stop() {  # EXIT_CODE: pass the signal on, once: mpirun gives its ranks no time to finish after a second one
  if [ -n "$stopped" ]; then return; fi
  stopped=$1
  if [ -n "$pid" ]; then kill -TERM "$pid" 2>/dev/null; fi
}
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM

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
  give_up "$1 cannot be written: no room in $STUDY_DIR; make some, then the same command goes on with this run"
}

run() {  # ID RANKS OPTIONS...
  local id=$1 ranks=$2 log="$STUDY_DIR/runs/$1.jsonl" out="$STUDY_DIR/runs/$1.out"
  local began=$SECONDS code=0
  shift 2
  started=$((started + 1))
  if [ -e "$log" ]; then
    if is_ok "$log"; then
      echo "[$started/$TOTAL] $id: done before, skipped"
    else
      failed=$((failed + 1))
      echo "[$started/$TOTAL] $id: its log exists but is not ok; rename it to do the run again ('python -m slurm run' does)"
    fi
    return
  fi
  echo "[$started/$TOTAL] $id"

  oom_kills_before=$(oom_kills)
  # In the background, because a trap waits for a foreground command to end. In a session of its own, so that Ctrl-C at
  # the terminal comes through `stop` only; `timeout --foreground` signals mpirun alone, once, and it ends the ranks.
  setsid timeout --foreground -k 10 "$LIMIT_S" \
    "$MPIRUN" --bind-to none --hostfile hosts.txt -n "$ranks" \
    "$PYTHON" -m bench "${COMMON[@]}" --world-size "$ranks" "$@" --log-path "$log" </dev/null >"$out" 2>&1 &
  pid=$!
  if [ -n "$stopped" ]; then kill -TERM "$pid" 2>/dev/null; fi  # the signal came before there was a pid
  while wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null; do :; done  # a trap ends `wait` early: wait again
  pkill -KILL -s "$pid" 2>/dev/null  # ranks that outlived a killed mpirun would slow the next run
  pid=""

  record "$log" "$out" "$code" $((SECONDS - began)) "$stopped" || full "$log"
  if [ "$code" != 0 ] || ! is_ok "$log"; then
    has_room || full "$log"
    failed=$((failed + 1))
    echo "[$started/$TOTAL] $id: exit code $code after $((SECONDS - began)) s, see $out"
  fi
  if [ "$code" = 2 ]; then give_up "$id: $(grep -m 1 '^error: ' "$out" | cut -c 8-)"; fi  # wrong input: all runs share it
  if [ -n "$stopped" ]; then
    echo "stopped; the same command goes on with the next run"
    exit "$stopped"
  fi
}

# Block 0: one randomised pass over all points, every run with seed 2025
run b00-00-horovod-mpi-w1-b8 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 0 --curves weak
run b00-01-horovod-mpi-w8-b8 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 1 --curves weak
run b00-02-ddp-mpi-w1-b8 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 2 --curves weak
run b00-03-ddp-mpi-w4-b8 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 3 --curves weak
run b00-04-single-w1-b8 1 --backend single --transport none --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 4 --curves weak
run b00-05-ddp-mpi-w8-b8 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 5 --curves weak
run b00-06-horovod-mpi-w4-b8 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2025 --block 0 --position 6 --curves weak

# Block 1: one randomised pass over all points, every run with seed 2026
run b01-00-ddp-mpi-w4-b8 4 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 0 --curves weak
run b01-01-single-w1-b8 1 --backend single --transport none --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 1 --curves weak
run b01-02-horovod-mpi-w1-b8 1 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 2 --curves weak
run b01-03-horovod-mpi-w4-b8 4 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 3 --curves weak
run b01-04-horovod-mpi-w8-b8 8 --backend horovod --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 4 --curves weak
run b01-05-ddp-mpi-w8-b8 8 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 5 --curves weak
run b01-06-ddp-mpi-w1-b8 1 --backend ddp --transport mpi --settings shipped --batch-per-rank 8 --seed 2026 --block 1 --position 6 --curves weak

echo "done: $TOTAL runs, $failed failed"
[ "$failed" = 0 ]
