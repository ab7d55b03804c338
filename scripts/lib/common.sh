# shellcheck shell=bash
# What the scripts of this folder share: sourced, never run. Everything stays on the loopback address, and every
# process that a script starts is ended by its process id when the script ends, however it ends.
set -euo pipefail

SCRIPTS=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
ROOT=$(dirname "$SCRIPTS")
ME=$(basename "$0")
# Cargo keeps rustup's shims here; a login shell may not have run yet.
[[ -d ${CARGO_HOME:-$HOME/.cargo}/bin ]] && PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

say() { echo "$ME: $*" >&2; }
die() { say "$*"; exit 1; }

# Prints the comment block under a script's first line: its help.
usage_of() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

# Makes WORK, a folder of this run that is removed at its end (KEEP=1 keeps it), and arms the clean-up.
# shellcheck disable=SC2034  # WORK is for the caller
make_work_dir() {
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/corelane-$ME.XXXXXX")
  trap 'on_exit' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

STARTED=()          # process ids that this script must end
STARTED_KAFKA=()    # data folders of Kafka nodes that this script must stop
TO_REMOVE=()        # folders outside of WORK that are removed with it

on_exit() {
  local status=$? one
  trap - EXIT
  for one in ${STARTED[@]+"${STARTED[@]}"}; do end_process "$one"; done
  for one in ${STARTED_KAFKA[@]+"${STARTED_KAFKA[@]}"}; do "$SCRIPTS/kafka" stop --data "$one" >/dev/null || true; done
  if [[ ${KEEP:-0} == 1 ]]; then say "kept $WORK"; else rm -rf "$WORK" ${TO_REMOVE[@]+"${TO_REMOVE[@]}"}; fi
  exit "$status"
}

# Ends one process that this script started: TERM, then KILL after 20 s. Sets END_STATUS when it was our child.
end_process() {
  END_STATUS=0
  [[ -d /proc/$1 ]] || return 0
  kill -TERM "$1" 2>/dev/null || true
  local deadline=$((SECONDS + 20))
  while [[ -d /proc/$1 && $(state_of "$1") != Z ]]; do
    ((SECONDS < deadline)) || { say "process $1 did not end within 20 s: killed"; kill -KILL "$1" 2>/dev/null || true; break; }
    sleep 0.02
  done
  wait "$1" 2>/dev/null || END_STATUS=$?
}

# One letter: R, S, D, Z …; Z is also what is said of a process that is gone.
state_of() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null || echo Z; }

# The first of N neighbouring loopback ports that nobody listens on (Kafka wants two).
free_port() {
  python3 - "${1:-1}" <<'PY'
import random, socket, sys
count = int(sys.argv[1])
for _ in range(200):
    first = random.randrange(20000, 30000)
    held = []
    try:
        for port in range(first, first + count):
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", port))
        print(first)
        sys.exit()
    except OSError:
        continue
    finally:
        for one in held:
            one.close()
sys.exit("no free port between 20000 and 30000")
PY
}

# CORELANE: the binary under test. What the caller names, else a release build of this checkout.
find_corelane() {
  if [[ -n ${CORELANE:-} ]]; then
    [[ -x $CORELANE ]] || die "CORELANE=$CORELANE is not a program"
    return
  fi
  say "building the release binary (set CORELANE=PATH to use another)"
  (cd "$ROOT" && ${CARGO:-cargo} build --release --locked --quiet)
  CORELANE=${CARGO_TARGET_DIR:-$ROOT/target}/release/corelane
}

# Has every corelane that is started from now on look for something to compact often; false where this version does not
# compact.
compact_often() {
  [[ $("$CORELANE" config docs) == *'`log.cleaner.backoff.ms`'* ]] || return
  export CORELANE_LOG_CLEANER_BACKOFF_MS=${1:-200}
}

# start_corelane DATA [ARGS...] → PID, ADDRESS, PORT, READY_MS. The port is the kernel's choice unless ARGS name one.
# shellcheck disable=SC2034
start_corelane() {
  local data=$1; shift
  mkdir -p "$data"
  local out=$data.out log=$data.log
  : >"$out"
  local listen=(--listen 127.0.0.1:0)
  [[ " $* " == *" --listen "* ]] && listen=()
  local from; from=$(date +%s%N)
  "$CORELANE" serve "${listen[@]}" --data-dir "$data" "$@" >"$out" 2>>"$log" </dev/null &
  PID=$!
  STARTED+=("$PID")
  local deadline=$((SECONDS + ${READY_SECONDS:-60}))
  until grep -q '^corelane ready' "$out"; do
    [[ -d /proc/$PID && $(state_of "$PID") != Z ]] || { tail -n 5 "$log" >&2; die "corelane ended before it was ready, see above"; }
    ((SECONDS < deadline)) || die "corelane did not get ready, see $log"
    sleep 0.01
  done
  READY_MS=$((($(date +%s%N) - from) / 1000000))
  ADDRESS=$(grep -o -E '([0-9]{1,3}\.){3}[0-9]{1,3}:[0-9]+' "$out" | head -n 1)
  [[ -n $ADDRESS ]] || die "no address in the line: $(head -n 1 "$out")"
  PORT=${ADDRESS##*:}
}

# stop_corelane PID: SIGTERM, and the exit status must be 0.
stop_corelane() {
  end_process "$1"
  [[ $END_STATUS == 0 ]] || die "corelane ended with status $END_STATUS after SIGTERM"
}

# start_kafka DATA [OPTIONS...] → PID, ADDRESS, PORT
start_kafka() {
  local data=$1; shift
  PORT=$(free_port 2)
  STARTED_KAFKA+=("$data")
  "$SCRIPTS/kafka" start --port "$PORT" --data "$data" "$@" >&2
  PID=$(<"$data/kafka.pid")
  # shellcheck disable=SC2034
  ADDRESS=127.0.0.1:$PORT
}

stop_kafka() { "$SCRIPTS/kafka" stop --data "$1" >&2; }

tool() { "$SCRIPTS/kafka" tool "$@"; }

# Sum of a topic's end offsets over its partitions.
end_offsets() {
  tool get-offsets --bootstrap-server "$1" --topic "$2" --time latest | awk -F: -v topic="$2" '
    $1 == topic { sum += $3; seen++ } END { if (!seen) exit 1; printf "%d\n", sum }'
}

# User plus system time of a process, all its threads, in seconds.
cpu_seconds() {
  sed 's/.*) //' "/proc/$1/stat" | awk -v tick="$(getconf CLK_TCK)" '{ printf "%.2f\n", ($12 + $13) / tick }'
}

# Busy time of the whole machine in seconds (all cores, idle and waiting left out).
machine_busy_seconds() {
  awk -v tick="$(getconf CLK_TCK)" '/^cpu / { printf "%.2f\n", ($2 + $3 + $4 + $7 + $8 + $9) / tick }' /proc/stat
}

# A field of /proc/PID/status in KiB: VmRSS now, VmHWM the peak.
memory_kib() { awk -v field="$2:" '$1 == field { print $2 }' "/proc/$1/status"; }

calc() { awk "BEGIN { printf \"${2:-%.2f}\", $1 }"; }

# Programs without which the caller cannot go on.
need() {
  local one
  for one in "$@"; do
    command -v "$one" >/dev/null || die "$one is missing: install it (Debian: apt-get install $one)"
  done
}

# READ_BACK: the reader on librdkafka (scripts/lib/read_back.rs), from the build that the tests use too.
# shellcheck disable=SC2034
build_read_back() {
  (cd "$ROOT" && ${CARGO:-cargo} build --locked --quiet --example read-back)
  READ_BACK=${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/read-back
}

# PLANTED: a build of corelane with a fault put in on purpose, the commit log's flush left out.
# shellcheck disable=SC2034
find_planted() {
  if [[ -n ${PLANTED:-} ]]; then
    [[ -x $PLANTED ]] || die "PLANTED=$PLANTED is not a program"
    return
  fi
  local target=${CARGO_TARGET_DIR:-$ROOT/target}
  say "building corelane without its flush (feature 'planted')"
  (cd "$ROOT" && ${CARGO:-cargo} build --locked --quiet --features planted)
  # Out of the way of the ordinary build, which has the same name.
  PLANTED=$target/corelane-planted
  # A second build is the very file of the first, and mv refuses to move a file onto itself.
  rm -f "$PLANTED"
  mv "$target/debug/corelane" "$PLANTED"
}
