#!/usr/bin/env bash
# Installs the missing Debian packages, and opens the device of TAPs to everybody. No other file lists what a machine
# needs.
#   tools/setup.sh build|demo|test|check      each level includes the ones before it
#   tools/setup.sh bench                      demo, and the libraries that splitnic-bench fabric compares splitnic with
#   tools/setup.sh mpi                        test, and MPI and more programs for tools/check.sh verbs
# As an ordinary user it installs nothing: it prints the one command that root must run, and fails, if something is missing.
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config git ca-certificates
       libboost1.81-dev capnproto libcapnp-dev libssl-dev libpcap-dev libisal-dev libmnl-dev libexpected-dev
       libseccomp-dev libcap-ng-dev
       libibverbs-dev librdmacm-dev libcli11-dev libspdlog-dev libfmt-dev libtomlplusplus-dev)
demo=(iproute2 iputils-ping iperf3 dnsmasq-base busybox curl ethtool procps util-linux python3 uidmap)
libraries=(catch2 libbenchmark-dev)  # of the tests: CMake looks for them whatever is built
tests=(clang-format-14 tshark tcpdump mandoc spin valgrind python3-jsonschema systemd
       ibverbs-utils perftest rdmacm-utils python3-pyverbs)  # programs that run on libibverbs, and rdma-core's tests
bench=(libucx-dev libfabric-dev libdpdk-dev librte-net-memif23
       dpdk-dev librte-net-af-packet23 librte-net-tap23)  # splitnic-bench nic: testpmd
mpi=(openmpi-bin libopenmpi-dev mpich libmpich-dev ucx-utils libfabric-bin qperf fio dapl2-utils)
check=(clang-16 clang-tidy-16 libclang-rt-16-dev dpkg-dev file lintian mmdebstrap)

case "${1:-}" in
  build) wanted=("${build[@]}") ;;
  demo)  wanted=("${build[@]}" "${libraries[@]}" "${demo[@]}") ;;
  test)  wanted=("${build[@]}" "${libraries[@]}" "${demo[@]}" "${tests[@]}") ;;
  mpi)   wanted=("${build[@]}" "${libraries[@]}" "${demo[@]}" "${tests[@]}" "${mpi[@]}") ;;
  bench) wanted=("${build[@]}" "${libraries[@]}" "${demo[@]}" "${bench[@]}") ;;
  check) wanted=("${build[@]}" "${libraries[@]}" "${demo[@]}" "${tests[@]}" "${check[@]}") ;;
  *) echo "usage: tools/setup.sh build|demo|test|check|bench|mpi" >&2; exit 2 ;;
esac

# Debian's udev lets everybody open the device of TAPs. A machine without udev may have it closed, or not at all.
if [ "$1" != build ] && [ "$(id -u)" -eq 0 ] && [ "$(stat -c %a /dev/net/tun 2>/dev/null)" != 666 ]; then
  mkdir -p /dev/net
  [ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
  chmod 0666 /dev/net/tun
fi

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "These Debian packages are missing. As root, run:" >&2
  echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "${missing[@]}" >&2; }
# A machine whose package lists are old or absent gets them first.
install || { apt-get update -q >&2 && install; }
