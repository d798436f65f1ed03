#!/usr/bin/env bash
# Ten attacks (docs/security.md) before and after: on the reviewed commit each test must fail with the expected sign, and
# the same without the attack must pass; today's tests of the same attacks must pass. Prints a table.
#   tests/hostile/reviewed_commit/run.sh            all rows
#   tests/hostile/reviewed_commit/run.sh --before   on the reviewed commit only
# attacks.patch adds tests to that commit, and nothing else. The tree and its build are in build/reviewed_commit.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=tests/hostile/reviewed_commit
commit=43052f75c928fa23d5bebaa84796094086dca98b
tree=$(pwd -P)/build/reviewed_commit
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "run.sh: the reviewed commit $commit is not in this clone; a shallow clone gets it by: git fetch --unshallow" >&2
  exit 2
fi

if [ "$(git -C "$tree" rev-parse --show-toplevel 2>/dev/null)" = "$tree" ]; then
  git -C "$tree" checkout --quiet --force --detach "$commit"
  git -C "$tree" clean --quiet -d --force
else
  rm -rf "$tree"
  git worktree add --quiet --force --detach "$tree" "$commit"
fi
git -C "$tree" apply "$PWD/$here/attacks.patch"

launcher=$(command -v ccache || true)
cmake -S "$tree" --preset release -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >/dev/null
cmake --build "$tree/build/release" --target splitnic reviewed_attacks reviewed_guarded_copy
if [ "${1:-}" != --before ]; then
  cmake --preset release >/dev/null
  cmake --build --preset release --target splitnic hostile_host unit_common unit_fabric unit_iounit \
    unit_guarded_portable
fi
exec python3 -B "$here/compare.py" "$tree" "$@"
