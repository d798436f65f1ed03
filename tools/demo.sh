#!/usr/bin/env bash
# Shows the virtual NIC at work: builds what is missing, makes a LAN of network namespaces, runs an I/O unit and two
# hosts on it, moves real traffic, ends with a table. Exit code 0 only if all of it worked.
#   tools/demo.sh            as root, or as an ordinary user (by user namespaces)
#   tools/demo.sh --keep     leaves it running afterwards and says what to try
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

for word in "$@"; do
  case "$word" in
    --keep) ;;
    -h|--help) sed -n '2,5s/^# \?//p' "$0"; exit 0 ;;
    *) echo "demo: unknown option $word (tools/demo.sh [--keep])" >&2; exit 2 ;;
  esac
done

say() { printf 'demo: %s\n' "$*"; }

say "looking for the packages it needs"
tools/setup.sh demo

if [ ! -r /dev/net/tun ] || [ ! -w /dev/net/tun ]; then
  echo "demo: this user may not open /dev/net/tun. As root, run:" >&2
  echo "  sh -c 'modprobe tun; chmod 0666 /dev/net/tun'" >&2
  exit 1
fi

if [ "$(id -u)" -ne 0 ] && ! unshare -Urnm true 2>/dev/null; then
  echo "demo: this machine lets no ordinary user make namespaces. Run the demo as root, or let users, as root:" >&2
  echo "  sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000" >&2
  exit 1
fi
say "building splitnic where needed (build/release; the first time takes some minutes)"
mkdir -p build
# Two demos at once: the second one waits for the first one's build.
exec 9>build/demo.lock
flock 9
log="$root/build/demo-build.log"
[ -f build/release/build.ninja ] || cmake --preset release >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build --preset release --target splitnic
exec 9>&-

demo=(python3 -B tools/lab/demo.py "$@")
if [ "$(id -u)" -eq 0 ]; then
  exec "${demo[@]}"
fi

say "not root: working in a user namespace of its own"
export SPLITNIC_DEMO_USERNS=1
# /run becomes private, because that is where `ip netns` keeps its names.
exec unshare -Urnm --propagation private \
  sh -c 'mount -t tmpfs tmpfs /run && mkdir /run/netns && exec "$@"' sh "${demo[@]}"
