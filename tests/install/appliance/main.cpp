// An I/O unit and a host in one process, over the in-process bridge, without TAP, pcap or tools: a frame that the
// application sends on its port comes out at the LAN, and one from the LAN comes back.
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/bridge/shm_bridge.h"
#include "host/host_driver.h"
#include "host/in_process_nic.h"
#include "iounit/io_unit.h"

using namespace splitnic;

namespace {

/// A LAN that keeps what it is sent and has frames put in by hand.
class LoopLan final : public iounit::LanEngine {
 public:
  std::vector<std::vector<std::byte>> sent, waiting;

  std::size_t receive(iounit::LanSink& sink, std::size_t) override {
    auto frames = std::exchange(waiting, {});
    for (const auto& frame : frames) sink.on_lan_frame(frame);
    return frames.size();
  }
  bool send(std::span<const std::byte> frame) override {
    sent.emplace_back(frame.begin(), frame.end());
    return true;
  }
  void flush() override {}
  void poll(Time) override {}
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  [[nodiscard]] bool carrier() const override { return true; }
  [[nodiscard]] std::uint32_t mtu() const override { return 1500; }
  [[nodiscard]] const iounit::LanCounters& counters() const override { return counters_; }
  [[nodiscard]] std::vector<int> descriptors() const override { return {}; }
  [[nodiscard]] std::string name() const override { return "loop"; }

 private:
  iounit::LanCounters counters_;
};

class OneBridge final : public fabric::BridgeSource {
 public:
  explicit OneBridge(std::unique_ptr<fabric::Bridge> bridge) : bridge_(std::move(bridge)) {}
  std::shared_ptr<fabric::Bridge> poll(Time) override { return std::move(bridge_); }
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>&) const override {}

 private:
  std::unique_ptr<fabric::Bridge> bridge_;
};

struct PrintedNotices final : Notices {
  void notice(const std::string& line) override { std::printf("%s\n", line.c_str()); }
};

std::vector<std::byte> make_frame(const MacAddress& to, const MacAddress& from) {
  std::vector<std::byte> bytes(64);
  std::memcpy(bytes.data(), to.octets.data(), 6);
  std::memcpy(bytes.data() + 6, from.octets.data(), 6);
  bytes[12] = std::byte{0x88};
  bytes[13] = std::byte{0xb5};  // an ethertype for experiments
  return bytes;
}

}  // namespace

int main() {
  auto ends = fabric::shm_pair();
  if (!ends) return 1;
  SystemRandom random;
  PrintedNotices notices;
  LoopLan lan;
  OneBridge host_bridge(std::move(ends->first));
  OneBridge unit_bridge(std::move(ends->second));
  iounit::IoUnitOptions unit_options;
  unit_options.session.name = "appliance";
  iounit::IoUnit unit(unit_options, lan, unit_bridge, random, notices);
  host::InProcessNic port;
  messaging::SessionOptions session;
  session.name = "firmware";
  host::HostDriver driver(session, port, host_bridge, random, notices);
  port.set_up(true);

  const MacAddress station{{2, 0, 0, 0, 0, 0x77}};
  bool asked = false;
  const Time give_up = monotonic_now() + std::chrono::seconds(10);
  for (Time now = monotonic_now(); now < give_up; now = monotonic_now()) {
    unit.poll(now);
    driver.poll(now);
    if (!asked && driver.up() && port.carrier()) asked = port.send(make_frame(station, port.address()));
    if (asked && !lan.sent.empty() && lan.waiting.empty()) {
      if (lan.sent.front() != make_frame(station, port.address())) return 1;
      lan.waiting.push_back(make_frame(port.address(), station));
    }
    std::vector<std::byte> room(2048);
    if (port.receive(room) == 64) {
      std::printf("a frame went out and one came back\n");
      return 0;
    }
  }
  std::printf("no frame within 10 s\n");
  return 1;
}
