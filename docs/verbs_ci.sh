#!/usr/bin/env bash
# Runs the tests of a verbs program on a fabric of their own, as an ordinary user: no RDMA hardware, no root, no
# kernel module.
#   verbs_ci.sh COMMAND [ARGUMENT...]    what runs the tests; its exit code is that of this script
# The command has a network (127.0.0.1 alone), process IDs and a fabric of its own, so that jobs do not meet. It ends
# with all its processes. SPLITNIC is the program (splitnic), SPLITNIC_FAULTS faults that its tests are to meet. What
# the fabric counted is printed at the end.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '/^# /s/^# //p; /^set /q' "$0" >&2; exit 2; }
splitnic=$(command -v "${SPLITNIC:-splitnic}")
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT

result=0
# Root of the user namespace is this user outside; it may bring the loopback interface up.
unshare --user --map-root-user --net --ipc --pid --fork --kill-child --mount --mount-proc \
  bash -c 'ip link set lo up && exec "$@"' job "$splitnic" verbs-run "$@" || result=$?

port=$XDG_RUNTIME_DIR/splitnic/fabric-default/sysfs/class/infiniband/splitnic0/ports/1
if [ -d "$port" ]; then
  echo "what the fabric counted:"
  (cd "$port" && grep -v '^0$' counters/* hw_counters/*) || echo "nothing"
fi
exit "$result"
