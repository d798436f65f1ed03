#!/usr/bin/env bash
# Plants one bug after the other (common/planted.h) and shows that a named test or a seed notices. Run by tools/check.sh --mutants.
#   tools/mutants.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."

# name | program | what must fail: a Catch2 test, or options of splitnic_sim
mutants=(
  "stale_epoch_accepted|unit_fabric|a record of another epoch or out of sequence is not there"
  "no_second_look|unit_fabric|prepare_sleep refuses when a record came in*"
  "next_head_not_zeroed|unit_fabric|old payload that looks like the next head word is never taken for a record"
  "ring_overfilled|unit_fabric|a full ring refuses*"
  "no_bounds_check|unit_fabric|remote bounds hold at -1*"
  "stale_tag_accepted|unit_fabric|a stale tag is refused after deregistration and after the index is used again"
  "double_return_accepted|unit_messaging|returning what was not consumed is a fault"
  "double_indication_accepted|unit_messaging|an element is the peer's until indicated and ours until returned"
  "lost_elements_kept|unit_messaging|skipped elements were lost on the way and are returned with the rest"
  "checksum_not_completed|unit_common|a partial checksum becomes the complete one and nothing else changes"
  "forged_source_accepted|unit_iounit|a pinned address can't be learned elsewhere and is found in every VLAN for ever"
)

build=build/mutants
program_fails() {  # program, test: true if the program says that the test failed (not that it was not found)
  local output
  if output=$(timeout 120 "$build/bin/$1" "$2" 2>&1); then return 1; fi
  grep -q "FAILED\|SIGABRT\|check failed\|violation" <<<"$output"
}

build_program() {
  local output
  output=$(cmake --build "$build" --target "$1" 2>&1) || { echo "$output" >&2; exit 1; }
}

survivors=0
for row in "${mutants[@]}"; do
  IFS='|' read -r name program test <<<"$row"
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=-O1 -Wno-maybe-uninitialized" -DSPLITNIC_MUTANT= >/dev/null
  build_program "$program"
  if ! timeout 120 "$build/bin/$program" "$test" 2>&1 | grep -q "All tests passed"; then
    echo "mutant $name: \"$test\" does not pass without it" >&2
    exit 1
  fi
  cmake -S . -B "$build" -DSPLITNIC_MUTANT="$name" >/dev/null
  build_program "$program"
  if program_fails "$program" "$test"; then
    echo "mutant $name: caught by \"$test\""
  else
    echo "mutant $name: SURVIVES \"$test\"" >&2
    survivors=$((survivors + 1))
  fi
done
[ "$survivors" -eq 0 ]
