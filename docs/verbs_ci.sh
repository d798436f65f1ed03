#!/usr/bin/env bash
# Runs the tests of a verbs program on a fabric of their own, as an ordinary user: no RDMA hardware, no root, no
# kernel module.
#   verbs_ci.sh COMMAND [ARGUMENT...]    what runs the tests; its exit code is that of this script
# The command has a network (127.0.0.1 alone), process IDs and a fabric of its own, so that jobs do not meet. It ends
# with all its processes, also if this script is ended by a signal. SPLITNIC is the program (splitnic),
# SPLITNIC_FAULTS faults that its tests are to meet. What the fabric counted is printed at the end.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '/^# /s/^# //p; /^set /q' "$0" >&2; exit 2; }
splitnic=$(command -v "${SPLITNIC:-splitnic}")

job=
cancel() {
  trap '' HUP INT TERM
  if [ -n "$job" ]; then
    # The first process of the namespace: unshare ends after the last one has.
    local first=
    read -r first _ < "/proc/$job/task/$job/children" || true
    kill -KILL "${first:-$job}" || true
    wait "$job" || true
  fi 2> /dev/null
  exit $((128 + $1))
}
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
trap 'cancel 1' HUP
trap 'cancel 2' INT
trap 'cancel 15' TERM

# Root of the user namespace is this user outside; it may bring the loopback interface up. A shell stays the first
# process: signals whose action is the default do not reach a first process. unshare runs in the background, because
# traps wait for what is in the foreground; there a shell would have it ignore SIGINT and read nothing. setpriv ends it
# if this script is killed.
setpriv --pdeathsig KILL env --default-signal=INT,QUIT \
  unshare --user --map-root-user --net --ipc --pid --fork --kill-child --mount --mount-proc \
  bash -c 'ip link set lo up && "$@"; exit $?' job "$splitnic" verbs-run "$@" <&0 &
job=$!
result=0
wait "$job" || result=$?
job=

port=$XDG_RUNTIME_DIR/splitnic/fabric-${SPLITNIC_FABRIC-default}/sysfs/class/infiniband/splitnic0/ports/1
if [ -d "$port" ]; then
  echo "what the fabric counted:"
  (cd "$port" && grep -v '^0$' counters/* hw_counters/*) || echo "nothing"
fi
exit "$result"
