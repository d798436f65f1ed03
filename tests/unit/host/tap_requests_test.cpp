#include "host/tap_requests.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/test_namespace.h"

namespace splitnic::host::tap_requests_test {
namespace {

using testing::OtherNamespace;
using testing::output_of;
using testing::run;
using testing::TestNamespace;

constexpr MacAddress kMac{{0x02, 0, 0, 0, 0, 1}};

/// Counts what reaches the rights, and refuses it.
class CountingRights final : public TapRights {
 public:
  Result<AttachedTap> attach(const TapOptions& options) override {
    ++calls;
    last = options;
    return fail("refused here");
  }
  Result<TapPlace> find(const TapDevice& /*device*/, bool /*keep*/) override {
    ++calls;
    return fail("refused here");
  }
  Result<void> set_mtu(const TapDevice& /*device*/, std::uint32_t /*mtu*/) override {
    ++calls;
    return fail("refused here");
  }
  Result<void> mark_address(const TapDevice& /*device*/, const MacAddress& /*address*/) override {
    ++calls;
    return fail("refused here");
  }
  int calls = 0;
  TapOptions last;
};

TapRequest request(TapRequest::What what) {
  TapRequest made{};
  made.what = static_cast<std::uint32_t>(what);
  return made;
}

os::PrivilegedMessage message(const TapRequest& content, const std::vector<int>& descriptors = {}) {
  os::PrivilegedMessage made;
  made.bytes.resize(sizeof content);
  std::memcpy(made.bytes.data(), &content, sizeof content);
  for (const int descriptor : descriptors) made.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  return made;
}

TEST_CASE("requests that a driver never makes are refused before the rights are used", "[host][tap][sandbox]") {
  CountingRights rights;
  TapService service("tap0", rights);
  const auto refusal = [&](os::PrivilegedMessage bad) {
    const auto answer = service.serve(std::move(bad));
    REQUIRE_FALSE(answer);
    return answer.error().message;
  };
  os::PrivilegedMessage short_one = message(request(TapRequest::What::attach));
  short_one.bytes.pop_back();
  CHECK(refusal(std::move(short_one)) == "a request for a TAP has 16 bytes");
  CHECK(refusal(message(request(TapRequest::What{0}))) == "an unknown request for a TAP");
  CHECK(refusal(message(request(TapRequest::What{5}))) == "an unknown request for a TAP");
  TapRequest wrong = request(TapRequest::What::attach);
  for (const std::uint32_t mtu : {1U, 67U, 65536U}) {
    wrong.mtu = mtu;
    CHECK_THAT(refusal(message(wrong)), Catch::Contains("MTU of " + std::to_string(mtu)));
  }
  wrong = request(TapRequest::What::attach);
  wrong.has_mac = 2;
  CHECK(refusal(message(wrong)) == "a flag is 0 or 1");
  wrong.has_mac = 1;
  CHECK(refusal(message(wrong)) == "no TAP has this address");  // zero
  wrong.mac[0] = 1;
  CHECK(refusal(message(wrong)) == "no TAP has this address");  // a group's
  CHECK_THAT(refusal(message(request(TapRequest::What::attach), {STDIN_FILENO})), Catch::Contains("no descriptor"));
  for (const auto what : {TapRequest::What::find, TapRequest::What::set_mtu, TapRequest::What::mark_address}) {
    CHECK_THAT(refusal(message(request(what))), Catch::Contains("comes with its descriptor"));
    CHECK_THAT(refusal(message(request(what), {0, 0})), Catch::Contains("comes with its descriptor"));
  }
  const os::UniqueFd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
  TapRequest find = request(TapRequest::What::find);
  CHECK(refusal(message(find, {other.get()})) == "the descriptor is not that of a TAP");
  CHECK(rights.calls == 0);
}

TEST_CASE("the privileged process makes the interface of its own name, with what the driver asks for",
          "[host][tap][sandbox]") {
  CountingRights rights;
  TapService service("tap0", rights);
  TapRequest attach = request(TapRequest::What::attach);
  CHECK_FALSE(service.serve(message(attach)));
  CHECK(rights.calls == 1);
  CHECK(rights.last.name == "tap0");
  CHECK_FALSE(rights.last.mac);
  CHECK_FALSE(rights.last.mtu);
  attach.mtu = 1400;
  attach.has_mac = 1;
  std::copy(kMac.octets.begin(), kMac.octets.end(), std::begin(attach.mac));
  CHECK_FALSE(service.serve(message(attach)));
  CHECK(rights.last.mac == kMac);
  CHECK(rights.last.mtu == 1400);
}

TEST_CASE("a TAP is made, measured and followed by another process", "[host][tap][sandbox][privileged]") {
  const TestNamespace inside;
  if (!inside) return;
  const OtherNamespace other;
  auto process = os::PrivilegedProcess::start({.service = tap_service("sn0", true, 1)});
  REQUIRE(process);
  TapRequests rights(std::shared_ptr<os::PrivilegedProcess>(*std::move(process)));

  auto tap = rights.attach({.name = "sn0", .mac = kMac, .mtu = 1400});
  REQUIRE(tap);
  CHECK(tap->created);
  CHECK(tap->made_here);
  CHECK(tap->device.name() == "sn0");
  CHECK(tap->device.mac() == kMac);
  CHECK(tap->device.offloads().frames);
  CHECK(tap->place.links.query("sn0")->mtu == 1400);
  CHECK_FALSE(rights.attach({.name = "sn0"}));  // busy

  CHECK(rights.set_mtu(tap->device, 1300));
  CHECK(tap->place.links.query("sn0")->mtu == 1300);
  CHECK_FALSE(rights.set_mtu(tap->device, 0));

  CHECK(rights.mark_address(tap->device, kMac));
  CHECK(tap->place.links.query("sn0")->alias == "splitnic sn0 02:00:00:00:00:01");
  CHECK_FALSE(rights.mark_address(tap->device, MacAddress{}));

  run("ip link set sn0 netns " + other.process());
  CHECK_FALSE(tap->place.links.query("sn0"));
  auto place = rights.find(tap->device, true);
  REQUIRE(place);
  CHECK(place->links.query("sn0")->mtu == 1300);
  CHECK(output_of("nsenter --net=/proc/" + other.process() +
                  "/ns/net cat /proc/sys/net/ipv4/conf/sn0/arp_evict_nocarrier") == "0\n");
  CHECK(tap->device.set_persistent(false));
}

}  // namespace
}  // namespace splitnic::host::tap_requests_test
