#!/usr/bin/env bash
# Makes the Debian packages and tries them in a fresh Debian: they install, the daemons serve by the README's commands,
# and purging them leaves nothing. Part of tools/check.sh. As root: it makes a chroot, namespaces and interfaces.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" -ne 0 ]; then
  echo "tools/check.sh package: only root can make the chroot that it needs" >&2
  exit 1
fi

cmake --preset release >/dev/null
cmake --build --preset release
rm -rf build/release/packages
(cd build/release && cpack -G DEB >packages.log 2>&1) || { cat build/release/packages.log >&2; exit 1; }
packages=(build/release/packages/*.deb)
[ ${#packages[@]} -eq 4 ] || { echo "tools/check.sh package: not four packages: ${packages[*]}" >&2; exit 1; }
lintian --allow-root --fail-on error --display-level error "${packages[@]}"

# A Debian like this machine's, from the sources and with the settings of transfer that this machine's apt has.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
settings=$(mktemp)
trap 'rm -f "$settings"' EXIT
apt-config dump Acquire | grep -v '""' >"$settings"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
  [ ! -s "$file" ] || sources+=("$file")
done
mmdebstrap --quiet --mode=root --variant=essential --format=null --aptopt="$settings" --dpkgopt=force-unsafe-io \
  --customize-hook='python3 -B tools/package/chroot_test.py "$1" build/release/packages' \
  "$suite" /dev/null "${sources[@]}"
