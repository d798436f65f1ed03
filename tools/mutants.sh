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
  "binding_not_checked|unit_fabric|every use of every kind of entry gets what its rights*"
  "read_beyond_window|unit_fabric|a window gives its own range and no byte of its region beyond it"
  "window_outlives_region|unit_fabric|a region is not deregistered*"
  "invalidate_foreign|unit_fabric|a peer's message invalidates only what was opened to it"
  "one_touch_twice|unit_fabric|a one-touch entry ends with the last segment of the first write"
  "one_shot_shared|unit_fabric|a one-shot entry is one operation's*"
  "no_bounds_check|hostile_fabric|a request for what is not its own is refused*"
  "stale_tag_accepted|hostile_fabric|a tag of any other instance is refused"
  "no_quarantine|hostile_fabric|a drain that is never acknowledged*"
  "stale_epoch_accepted|hostile_fabric|a record of another epoch or out of sequence is not there"
  "impossible_tail_believed|hostile_fabric|more room than was sent*"
  "record_length_believed|hostile_fabric|a record of an impossible length*"
  "grant_believed|hostile_fabric|a grant outside of its maker's buffers is not believed"
  "no_quarantine|unit_fabric|a revoked range is in quarantine until the peer says that its direct writes are over"
  "drained_while_copying|unit_fabric|a drain waits for the engine's copies into that memory*"
  "terminate_twice|unit_fabric|the terminate message is sent once*"
  "acknowledgement_overtakes_answer|unit_fabric|an acknowledgement of what came after a read waits for the read's answer"
  "any_message_sequence|unit_fabric|a request with an unexpected message sequence number*"
  "atomic_executed_again|unit_fabric|the owner answers a repeated read again*"
  "fence_ignored|unit_fabric|no more reads are outstanding than the peer takes*"
  "invalidated_under_retry|unit_fabric|a local invalidation waits for what was sent before it*"
  "retry_registers_again|unit_fabric|a retry passes by the memory requests between the messages that it repeats"
  "failure_out_of_turn|unit_fabric|*first option: the sends are flushed*"
  "direct_answer_without_sink|unit_fabric|a sink that was deregistered takes no direct answer"
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

configure() {  # name of the bug, or nothing
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=-O1 -Wno-maybe-uninitialized" \
    "-DSPLITNIC_MUTANT=$1" >/dev/null
}

chosen=()
for row in "${mutants[@]}"; do
  if [ $# -eq 0 ] || [[ " $* " == *" ${row%%|*} "* ]]; then chosen+=("$row"); fi
done

configure ""
for row in "${chosen[@]}"; do
  IFS='|' read -r name program test <<<"$row"
  build_program "$program"
  if ! timeout 120 "$build/bin/$program" "$test" 2>&1 | grep -q "All tests passed"; then
    echo "mutant $name: \"$test\" does not pass without it" >&2
    exit 1
  fi
done

survivors=0
for row in "${chosen[@]}"; do
  IFS='|' read -r name program test <<<"$row"
  configure "$name"
  build_program "$program"
  if program_fails "$program" "$test"; then
    echo "mutant $name: caught by \"$test\""
  else
    echo "mutant $name: SURVIVES \"$test\"" >&2
    survivors=$((survivors + 1))
  fi
done
echo "${#chosen[@]} mutants, $survivors survived"
[ "$survivors" -eq 0 ]
