#include "iounit/lan_spec.h"

#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/quiet_log.h"
#include "tests/unit/test_namespace.h"

namespace splitnic::iounit::lan_spec_test {
namespace {

SavefileSpec files(std::string_view text) {
  const Result<LanSpec> spec = parse_lan_spec(text);
  if (!spec) FAIL(spec.error().message);
  REQUIRE(std::holds_alternative<SavefileSpec>(*spec));
  return std::get<SavefileSpec>(*spec);
}

/// For the rest of the thread's life, as on a kernel before 2.6.39. False: it may not filter its system calls.
bool take_away_virtio_net_headers() {
  constexpr auto kFirst = static_cast<std::uint32_t>(offsetof(seccomp_data, args));
  const auto load = [](std::size_t at) { return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, std::uint32_t(at)); };
  const auto unless = [](std::uint32_t value, std::uint8_t skip) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
  };
  const auto end = [](std::uint32_t with) { return sock_filter BPF_STMT(BPF_RET | BPF_K, with); };
  sock_filter steps[] = {load(offsetof(seccomp_data, nr)),
                         unless(SYS_setsockopt, 5),
                         load(kFirst + 8),
                         unless(SOL_PACKET, 3),
                         load(kFirst + 16),
                         unless(PACKET_VNET_HDR, 1),
                         end(SECCOMP_RET_ERRNO | ENOPROTOOPT),
                         end(SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(steps), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string refusal(std::string_view text) {
  const Result<LanSpec> spec = parse_lan_spec(text);
  REQUIRE_FALSE(spec);
  return spec.error().message;
}

TEST_CASE("a LAN is an interface name or a pair of savefiles", "[iounit][spec]") {
  CHECK(parse_lan_spec("eth0").value() == LanSpec{InterfaceSpec{"eth0"}});
  CHECK(parse_lan_spec("a23456789012345").value() == LanSpec{InterfaceSpec{"a23456789012345"}});
  CHECK(files("file:in.pcap,out.pcap") == SavefileSpec{.input = "in.pcap", .output = "out.pcap"});
  CHECK(files("file:,my out.pcap") == SavefileSpec{.input = "", .output = "my out.pcap"});
  CHECK(files("file:in.pcap,") == SavefileSpec{.input = "in.pcap", .output = ""});
  CHECK(files("file:a,b,pace=max,wait-hosts=3,mtu=9000") ==
        SavefileSpec{.input = "a", .output = "b", .pace_max = true, .wait_hosts = 3, .mtu = 9000});
  CHECK(files("file:a,b,wait-hosts=0,pace=recorded").wait_hosts == 0);
}

TEST_CASE("a wrong LAN is refused with what is wrong about it", "[iounit][spec]") {
  CHECK_THAT(refusal(""), Catch::Contains("empty"));
  CHECK_THAT(refusal("a234567890123456"), Catch::Contains("longer than 15"));
  CHECK_THAT(refusal("eth 0"), Catch::Contains("can't be an interface name"));
  CHECK_THAT(refusal("../eth0"), Catch::Contains("can't be an interface name"));
  CHECK_THAT(refusal("File:a,b"), Catch::Contains("can't be an interface name"));
  CHECK_THAT(refusal("file:"), Catch::Contains("needs two paths"));
  CHECK_THAT(refusal("file:in.pcap"), Catch::Contains("needs two paths"));
  CHECK_THAT(refusal("file:,"), Catch::Contains("neither an input nor an output"));
  CHECK_THAT(refusal("file:a,b,pace=min"), Catch::Contains("pace=min"));
  CHECK_THAT(refusal("file:a,b,wait-hosts=-1"), Catch::Contains("wait-hosts=-1"));
  CHECK_THAT(refusal("file:a,b,wait-hosts=1x"), Catch::Contains("wait-hosts=1x"));
  CHECK_THAT(refusal("file:a,b,wait-hosts"), Catch::Contains("wait-hosts="));
  CHECK_THAT(refusal("file:a,b,mtu=67"), Catch::Contains("mtu=67"));
  CHECK_THAT(refusal("file:a,b,mtu=99999999999"), Catch::Contains("mtu=99999999999"));
  CHECK_THAT(refusal("file:a,b,"), Catch::Contains("unknown option ''"));
  CHECK_THAT(refusal("file:a,b,c"), Catch::Contains("unknown option 'c'"));
}

TEST_CASE("an interface is opened by the engine that was asked for, by a packet socket otherwise",
          "[iounit][spec][privileged]") {
  const testing::TestNamespace inside;
  if (!inside) return;
  testing::run("ip link add lan0 type veth peer name lan1");
  const auto engine_for = [](InterfaceEngine asked) {
    const auto lan = open_lan(InterfaceSpec{"lan0", asked}, Time{}, {}, testing::quiet_log());
    REQUIRE(lan);
    CHECK((*lan)->name() == "lan0");
    return std::string((*lan)->engine());
  };
  CHECK(engine_for(InterfaceEngine::automatic) == "packet");
  CHECK(engine_for(InterfaceEngine::packet) == "packet");
  CHECK(engine_for(InterfaceEngine::pcap) == "pcap");
  for (const auto engine : {InterfaceEngine::automatic, InterfaceEngine::packet, InterfaceEngine::pcap}) {
    const auto missing = open_lan(InterfaceSpec{"nosuch", engine}, Time{}, {}, testing::quiet_log());
    REQUIRE_FALSE(missing);
    CHECK_THAT(missing.error().message, Catch::Contains("no interface named nosuch"));
  }
}

TEST_CASE("where packet sockets have no virtio-net headers, libpcap takes their place, unless they were asked for",
          "[iounit][spec][privileged]") {
  const testing::TestNamespace inside;
  if (!inside) return;
  testing::run("ip link add lan0 type veth peer name lan1");
  testing::run("ip link set lan0 up");
  testing::run("ip link set lan1 up");
  std::vector<std::string> lines;
  os::Log log("unit", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  bool taken_away = false;
  Result<std::unique_ptr<LanEngine>> automatic, packet, pcap;
  std::thread old_kernel([&] {
    taken_away = take_away_virtio_net_headers();
    automatic = open_lan(InterfaceSpec{"lan0", InterfaceEngine::automatic}, Time{}, {}, log);
    packet = open_lan(InterfaceSpec{"lan0", InterfaceEngine::packet}, Time{}, {}, testing::quiet_log());
    pcap = open_lan(InterfaceSpec{"lan0", InterfaceEngine::pcap}, Time{}, {}, testing::quiet_log());
  });
  old_kernel.join();
  REQUIRE(taken_away);
  REQUIRE(automatic);
  CHECK((*automatic)->engine() == "pcap");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "warn  unit: can't use a packet socket on the LAN interface lan0: virtio-net headers: Protocol not available; "
        "using libpcap");
  CHECK(lines[1] == "info  unit: LAN interface lan0: libpcap, which can't tell how super-frames of UDP are to be cut");
  REQUIRE_FALSE(packet);
  CHECK_THAT(packet.error().message, Catch::Contains("virtio-net headers: Protocol not available"));
  CHECK(pcap);
}

TEST_CASE("opening a LAN hands on the engine's refusal", "[iounit][spec]") {
  const auto missing = open_lan(SavefileSpec{.input = "/no/such.pcap", .output = ""}, Time{}, {}, testing::quiet_log());
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, Catch::Contains("/no/such.pcap"));
}

}  // namespace
}  // namespace splitnic::iounit::lan_spec_test
