#!/usr/bin/env bash
# Formats every source file, or with --check says which are not formatted and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp')
if [ "${1:-}" = "--check" ]; then
  clang-format-14 --dry-run --Werror "${files[@]}"
else
  clang-format-14 -i "${files[@]}"
fi
