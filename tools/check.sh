#!/usr/bin/env bash
# What takes longer than the tests: sanitizers, clang-tidy, a swarm of simulated runs, fuzzing, long transfers, attacks,
# kills, programs for RDMA verbs, planted bugs, and the holes that a review found, then and now.
#   tools/check.sh             asan tsan swarm fuzz bulk mutants tidy, each part short
#   tools/check.sh PART...     only these parts: asan tsan tidy swarm fuzz bulk hostile kill peers verbs mutants stress
#                              package before
#   tools/check.sh --kill N    the part kill with N kills
#   tools/check.sh --hostile   the part hostile in its long form, about an hour and a quarter: all attacks, 10 s each,
#                              medians of five pairs, which must reach 0.9 of the rates beside an honest host, and 1.5
#                              of the ping; a million frames with foreign addresses; 10^9 hostile cells
# hostile, kill, peers, verbs, stress, package and before run only when they are named; the tests have a short form of
# the first four. before builds the reviewed commit in build/reviewed_commit, shows that each of ten attacks succeeds
# there, and runs today's tests of the same attacks (docs/security.md); it needs the whole history and root. stress runs
# each test STRESS_REPETITIONS times (20) beside two busy loops, without models, benchmarks, installation and the tests
# that want the machine for themselves: about two hours on two cores. package makes the Debian packages and tries them,
# as root, in a Debian that it downloads; where that can't be done it fails and says why.
# What is checked decides what is drawn, so a run that failed can be repeated: the swarm's seeds, the fuzzers' and the
# planted bugs.
# SWARM_SEEDS and BULK_MEGABYTES make the swarm and the transfers larger, and FUZZ_SECONDS the fuzzing longer.
# HOSTILE=all runs all attacks instead of eight, HOSTILE_SECONDS for longer, HOSTILE_PAIRS more often; SPOOFED is how
# many frames with foreign addresses and tags a model judges beside the unit, and HOSTILE_CELLS how many cells sessions,
# a unit and a host driver take from a hostile end. KILLS is how many processes are killed (1000), and KILL_SEED repeats
# the order of an earlier run. PEER_KILLS is how many peers of one program are killed, one each second. TIDY=all makes
# the linter check every file; without it tools/tidy_files.py chooses, changed files first. TIDY_UNTIL is a time
# (seconds of the epoch) after which the linter begins no more files, and says how many are left. MUTANTS is how many
# planted bugs are tried, and VERBS how many pairs of verbs programs run, or "all"; the commit's hash decides which
# ones.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then
  sed -n '/^# /s/^# //p; /^set /q' tools/check.sh
  exit 0
fi
if [ "${1:-}" = --kill ]; then
  [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || { echo "tools/check.sh: --kill needs a number of kills" >&2; exit 2; }
  KILLS=$2
  set -- kill
fi
if [ "${1:-}" = --hostile ]; then
  export HOSTILE=${HOSTILE:-all} HOSTILE_SECONDS=${HOSTILE_SECONDS:-10} HOSTILE_PAIRS=${HOSTILE_PAIRS:-5}
  HOSTILE_CELLS=${HOSTILE_CELLS:-1000000000}
  set -- hostile
fi
jobs=$(nproc)
swarm_seeds=${SWARM_SEEDS:-300}
fuzz_seconds=${FUZZ_SECONDS:-6}
mutants=${MUTANTS:-8}
tidy=${TIDY:-}
verbs=${VERBS:-8}
stress_repetitions=${STRESS_REPETITIONS:-20}

# The same tree draws the same again, another tree something else.
tree_seed=$((16#$(git rev-parse HEAD^{tree} | cut -c1-7)))

say() { printf '\n== %s\n' "$*"; }

build() {  # build PRESET target...
  cmake --preset "$1" >/dev/null
  cmake --build --preset "$1" --target "${@:2}"
}

part_asan() {
  say "AddressSanitizer and UBSan: unit tests, layers, fuzz seeds"
  build asan all
  ctest --preset asan -LE integration -j "$jobs" --no-tests=error
}

part_tsan() {
  say "ThreadSanitizer: rings and sleeping, one mapping, two threads, programs on the C verbs"
  build tsan unit_fabric unit_host unit_iounit unit_ibverbs unit_rdmacm
  build/tsan/bin/unit_fabric
  build/tsan/bin/unit_host "~[privileged]"
  build/tsan/bin/unit_iounit "[threads]"
  # It takes a thread of a forked child for the parent's of the same address.
  TSAN_OPTIONS=die_after_fork=0 build/tsan/bin/unit_ibverbs "~[fork_beside_threads]"
  TSAN_OPTIONS=die_after_fork=0 build/tsan/bin/unit_rdmacm
}

part_tidy() {
  say "clang-tidy: $([ "$tidy" = all ] && echo "every file" || echo "the changed files and a third of the others")"
  cmake --preset release >/dev/null
  cmake --build --preset release
  # The linter can't read gcc's precompiled headers, and is to see what a file includes itself. The generated sources
  # are those of the build.
  cmake --preset release -B build/tidy -DSPLITNIC_PRECOMPILE=OFF -DSPLITNIC_UNITY=OFF >/dev/null
  sed -i 's#/build/tidy#/build/release#g' build/tidy/compile_commands.json
  local files
  files=$(tools/tidy_files.py --built build/tidy/compile_commands.json $([ "$tidy" != all ] || echo --all))
  mapfile -t files <<<"$files"
  echo "${#files[@]} files"
  : >build/tidy/begun
  printf '%s\0' "${files[@]}" | xargs -0 -P "$jobs" -n 4 bash -c '
    [ "$(date +%s)" -lt "$0" ] || exit 0
    printf "%s\n" "$@" >>build/tidy/begun
    exec clang-tidy-16 --quiet -p build/tidy --extra-arg-before=-include \
      "--extra-arg-before=$PWD/tools/cmake/kj_comparisons.h" "$@"' "${TIDY_UNTIL:-$((1 << 62))}" \
    2> >(grep -v 'warnings generated' >&2)
  local left=$((${#files[@]} - $(wc -l <build/tidy/begun)))
  [ "$left" -eq 0 ] || echo "the time was over: $left of ${#files[@]} files are left to another run"
}

part_swarm() {
  say "simulation: $swarm_seeds seeds, and $((swarm_seeds / 30 + 1)) each of protected memory, of many services and of the short way, under AddressSanitizer"
  build asan splitnic_sim memory_sim peers_sim express_sim
  local first=$((tree_seed % 32768 * 1000))
  build/asan/bin/splitnic_sim --seeds "$first-$((first + swarm_seeds - 1))"
  local program
  for program in memory_sim peers_sim express_sim; do
    "build/asan/bin/$program" --seeds "$first-$((first + swarm_seeds / 30))" --operations 10000
  done
}

part_fuzz() {
  say "fuzzing: $fuzz_seconds s a target, seed $((tree_seed + 1))"
  build fuzz fuzzers
  local target name
  for target in build/fuzz/bin/fuzz_*; do
    name=${target##*/fuzz_}
    mkdir -p "build/fuzz/corpus/$name"
    "$target" -seed=$((tree_seed + 1)) -max_total_time="$fuzz_seconds" -print_final_stats=0 -verbosity=0 \
      -artifact_prefix="build/fuzz/" \
      "build/fuzz/corpus/$name" $([ -d "tests/fuzz/seeds/$name" ] && echo "tests/fuzz/seeds/$name")
    echo "fuzz $name: nothing found"
  done
}

part_bulk() {
  say "TCP both ways under a flood of small packets: ${BULK_MEGABYTES:-64} MB each way, with and without offloads"
  build release splitnic
  python3 -B tests/integration/test_bulk.py
}

part_verbs() {
  say "programs for RDMA verbs: $verbs pairs, rdma-core's own tests, qperf, fio, DAPL, and MPI on four ranks"
  tools/setup.sh mpi
  build release splitnic splitnic_ibverbs splitnic_rdmacm splitnic_uverbs bench-message-costs bench-verbs-costs
  local count=()
  [ "$verbs" = all ] || count=(--count "$verbs" --seed "$(git rev-parse HEAD)")
  python3 -B tests/ibverbs/matrix.py --verbose "${count[@]}"
  python3 -B tests/ibverbs/pyverbs_test.py
  python3 -B tests/ibverbs/applications_test.py
  SPLITNIC_BIN=$PWD/build/release/bin TRACE=all python3 -B tests/bench/test_waiting_loads.py
  python3 -B tests/ibverbs/mpi_test.py $([ "$verbs" = all ] || echo OrdinaryUser)
}

part_hostile() {
  say "attacks beside honest hosts: ${HOSTILE:-eight of them}, ${HOSTILE_SECONDS:-2} s each, ${HOSTILE_PAIRS:-1} times"
  build release splitnic hostile_host hostile_sessions unit_iounit
  python3 -B tests/integration/test_neighbours.py
  SPOOFED=${SPOOFED:-1000000} build/release/bin/unit_iounit "[spoofing]"
  HOSTILE_CELLS=${HOSTILE_CELLS:-10000000} build/release/bin/hostile_sessions
}

part_kill() {
  local seed=${KILL_SEED:-$RANDOM}
  say "kills: ${KILLS:-1000} of two I/O units, six hosts, verbs programs and their helpers, with seed $seed"
  build release splitnic splitnic_ibverbs splitnic_rdmacm splitnic_uverbs
  python3 -B tests/integration/test_kills.py --kills "${KILLS:-1000}" --seed "$seed"
}

part_peers() {
  local seed=${KILL_SEED:-$RANDOM}
  say "peers: one of 64 is killed every second, ${PEER_KILLS:-300} times, with seed $seed"
  build release many_peers
  build/release/bin/many_peers --kills "${PEER_KILLS:-300}" --seed "$seed"
}

part_mutants() {
  say "planted bugs: $mutants; each must fail the tests that are named for it"
  if [ "$mutants" = all ]; then tools/mutants.py; else tools/mutants.py --draw "$mutants"; fi
}

part_stress() {
  say "beside two busy loops: each test $stress_repetitions times"
  build release all
  local result=0
  loops=()
  for _ in 1 2; do
    (while :; do :; done) &
    loops+=($!)
  done
  trap 'kill "${loops[@]}" 2>/dev/null' EXIT
  # More at a time than there are cores, so that each test also competes with the others.
  ctest --preset release -E "^(bench|install|models|quiet verbs): |neighbours (Neighbours|OtherUser)$" -j $((2 * jobs + 1)) \
    --repeat "until-fail:$stress_repetitions" --output-on-failure --no-tests=error || result=$?
  kill "${loops[@]}"
  trap - EXIT
  return "$result"
}

part_package() {
  say "packages: made, installed in a fresh Debian, used, purged"
  tools/package/check.sh
}

part_before() {
  say "ten attacks: on the reviewed commit each succeeds, and today's tests of them pass"
  tests/hostile/reviewed_commit/run.sh
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(asan tsan swarm fuzz bulk mutants tidy)
level=check
[ "${parts[*]}" = "mutants" ] && level=test
tools/setup.sh $level
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "tools/check.sh: no such part: $part" >&2; exit 2; }
  "part_$part"
done
say "all checks passed: ${parts[*]}"
