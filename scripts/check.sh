#!/usr/bin/env bash
# Everything that must hold before a change is merged; CI runs the same.
#
#   check.sh              format, clippy, scripts, differences from Kafka, documentation, tests
#   check.sh --quick      without the tests
#
# CARGO=PROGRAM is run in place of cargo.
source "$(dirname "$(readlink -f "$0")")/lib/common.sh"

quick=0
case ${1:-} in
  '') ;;
  --quick) quick=1 ;;
  -h | --help) usage_of "$0"; exit ;;
  *) die "what is '$1'? (--help)" ;;
esac
cd "$ROOT"
export CLIPPY_CONF_DIR=.ci
CARGO=${CARGO:-cargo}

step() {
  local from=$SECONDS
  echo "== $*"
  "$@"
  echo "== done after $((SECONDS - from)) s"
}

scripts_parse() {
  local one
  for one in scripts/* .ci/run scripts/lib/* scripts/compare/*; do
    case $(head -n 1 "$one" 2>/dev/null) in
      '#!/usr/bin/env bash' | '# shellcheck shell=bash') bash -n "$one" ;;
      '#!/usr/bin/env python3' | '"""'*) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$one" ;;
    esac
  done
}

step $CARGO fmt --all --check
step scripts_parse
step scripts/compare-with-kafka differences --check
step scripts/planted-bugs --check
step $CARGO clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" step $CARGO doc --locked --no-deps --quiet
((quick)) || step $CARGO test --locked
echo "all checks passed"
