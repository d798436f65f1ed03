#!/usr/bin/env bash
# What takes longer than the tests: sanitizers, clang-tidy, a swarm of simulated runs, fuzzing, long transfers, planted
# bugs.
#   tools/check.sh             everything, each part short
#   tools/check.sh PART...     only these parts: asan tsan tidy swarm fuzz bulk mutants stress package
# stress and package run only when they are named. stress runs each test STRESS_REPETITIONS times (20) beside two busy
# loops, without models, benchmarks and installation: about two hours on two cores. package makes the Debian packages
# and tries them, as root, in a Debian that it downloads; where that can't be done it fails and says why.
# SWARM_SEEDS and BULK_MEGABYTES make the swarm and the transfers larger, and FUZZ_SECONDS the fuzzing longer. TIDY=all
# makes the linter check every file; without it tools/tidy_files.py chooses. MUTANTS is how many planted bugs are tried,
# or "all"; the commit's hash decides which ones.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
swarm_seeds=${SWARM_SEEDS:-300}
fuzz_seconds=${FUZZ_SECONDS:-20}
mutants=${MUTANTS:-8}
tidy=${TIDY:-}
stress_repetitions=${STRESS_REPETITIONS:-20}

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
  say "ThreadSanitizer: rings and sleeping, one mapping, two threads"
  build tsan unit_fabric unit_host
  build/tsan/bin/unit_fabric
  build/tsan/bin/unit_host "~[privileged]"
}

part_tidy() {
  say "clang-tidy: $([ "$tidy" = all ] && echo "every file" || echo "the changed files and a third of the others")"
  cmake --preset release >/dev/null
  cmake --build --preset release
  local files
  files=$(tools/tidy_files.py $([ "$tidy" != all ] || echo --all))
  mapfile -t files <<<"$files"
  echo "${#files[@]} files"
  printf '%s\0' "${files[@]}" | xargs -0 -P "$jobs" -n 4 clang-tidy-16 --quiet -p build/release \
    "--extra-arg-before=-include" "--extra-arg-before=$PWD/tools/cmake/kj_comparisons.h" 2> >(grep -v 'warnings generated' >&2)
}

part_swarm() {
  say "simulation: $swarm_seeds seeds, and $((swarm_seeds / 30 + 1)) of protected memory, under AddressSanitizer"
  build asan splitnic_sim memory_sim
  local first=$((RANDOM * 1000))
  build/asan/bin/splitnic_sim --seeds "$first-$((first + swarm_seeds - 1))"
  build/asan/bin/memory_sim --seeds "$first-$((first + swarm_seeds / 30))" --operations 10000
}

part_fuzz() {
  say "fuzzing: $fuzz_seconds s a target"
  build fuzz fuzzers
  local target name
  for target in build/fuzz/bin/fuzz_*; do
    name=${target##*/fuzz_}
    mkdir -p "build/fuzz/corpus/$name"
    "$target" -max_total_time="$fuzz_seconds" -print_final_stats=0 -verbosity=0 -artifact_prefix="build/fuzz/" \
      "build/fuzz/corpus/$name" $([ -d "tests/fuzz/seeds/$name" ] && echo "tests/fuzz/seeds/$name")
    echo "fuzz $name: nothing found"
  done
}

part_bulk() {
  say "TCP both ways under a flood of small packets: ${BULK_MEGABYTES:-64} MB each way, with and without offloads"
  build release splitnic
  python3 -B tests/integration/test_bulk.py
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
  ctest --preset release -E "^(bench|install|models):" -j $((2 * jobs + 1)) \
    --repeat "until-fail:$stress_repetitions" --output-on-failure --no-tests=error || result=$?
  kill "${loops[@]}"
  trap - EXIT
  return "$result"
}

part_package() {
  say "packages: made, installed in a fresh Debian, used, purged"
  tools/package/check.sh
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(asan tsan swarm fuzz bulk tidy mutants)
level=check
[ "${parts[*]}" = "mutants" ] && level=test
tools/setup.sh $level
for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "tools/check.sh: no such part: $part" >&2; exit 2; }
  "part_$part"
done
say "all checks passed: ${parts[*]}"
