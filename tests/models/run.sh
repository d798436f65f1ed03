#!/usr/bin/env bash
# Checks the models in every interleaving, on processors that order stores as x86 does and on weaker ones; then leaves
# out one thing after the other, each of which must be missed. Every order that x86 allows is also one of the weaker ones:
# so what holds there holds on x86, and what goes wrong on x86 goes wrong there. MODELS=all tries these, too.
# Arguments: the folder to work in.
set -euo pipefail
models=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"

check() {  # check MODEL good|bad MACRO...
  local model=$1 wanted=$2 name
  shift 2
  if [ "${MODELS:-}" != all ] && [ "$follows" = "$wanted-$1" ]; then return; fi
  name=$model$(printf -- '-%s' "$@")
  mkdir -p "$name"
  (
    cd "$name"
    cp "$models/$model.pml" "$models/memory.inc" .
    spin -a "${@/#/-D}" "$model.pml" >spin.log
    cc -w -DSAFETY -DNOFAIR -DCOLLAPSE -o pan pan.c
    # The largest of the models has 700 000 states; the deepest search has 500 steps.
    ./pan -w20 -m20000 >pan.log 2>&1 || true
    local errors found=good
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
    if [ -z "$errors" ] || grep -q 'max search depth too small' pan.log; then
      echo "$name: the search did not end:" && cat pan.log && exit 1
    fi
    [ "$errors" = 0 ] || found=bad
    if [ "$found" != "$wanted" ]; then
      echo "$name: $errors errors, which should be $wanted" && cat pan.log && exit 1
    fi
    echo "$name: $wanted, $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states"
  )
}

for follows in good-TSO bad-WEAK; do  # the searches whose results follow from those in the other order
  order=${follows#*-}
  check sleep good $order
  check sleep bad $order NO_S1
  check sleep bad $order NO_S2
  check sleep bad $order NO_SECOND_LOOK
  check armed good $order
  for left_out in STAYS_TAKEN REARMED_TAKEN POST_STAYS OLD_WISHES SAME_FLAG NO_FENCE NO_SECOND_LOOK; do
    check armed bad $order $left_out
  done
  check line good $order
  check line bad $order REPORTED_BY_SLOT
  check line bad $order LINE_AFTER_RING
  check line bad $order NO_FENCE
  check slots good $order
  check slots bad $order NO_ACQUIRE
  check slots bad $order TAIL_EARLY
  check slots bad $order NO_ROOM
  check answers good $order
  check answers bad $order SETTLED_FIRST
  check answers bad $order COUNT_FIRST
  check bias good $order
  for left_out in NO_MEMBARRIER NO_SECOND_LOOK NO_WAIT NO_WAKE ONE_FLAG; do check bias bad $order "$left_out"; done
done
follows=
# Stores of one processor are seen in order on x86: only weaker ones need these.
check slots good TSO NO_RELEASE
check slots bad WEAK NO_RELEASE
check answers good TSO NO_BARRIER
check bias good TSO NO_RELEASE
check bias bad WEAK NO_RELEASE
check answers bad WEAK NO_BARRIER
