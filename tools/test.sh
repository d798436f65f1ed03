#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests. Arguments go to ctest (for example: -R fabric).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh test
cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
rm -f build-configure.log
cmake --build --preset release
tools/format.sh --check
# What the build wrote goes to the disk now, and not while tests measure times.
sync
# One more at a time than there are cores: the integration tests mostly wait.
ctest --test-dir build/release --output-on-failure -j "$(($(nproc) + 1))" "$@" || {
  code=$?
  tools/failed_tests.py build/release
  exit $code
}
