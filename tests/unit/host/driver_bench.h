#pragma once

// A host driver in simulated time: a virtual NIC in memory, and an I/O unit that is a session on a simulated bridge and
// a record of what it was asked.

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "host/host_driver.h"
#include "messaging/session.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/common/settled_time.h"
#include "tests/unit/loads_once.h"

namespace splitnic::host::test {

namespace wire = messaging::wire;
using Frame = std::vector<std::byte>;

inline constexpr int kNicDescriptor = 1000;
inline constexpr int kSourceDescriptor = 1001;
inline constexpr MacAddress kUnitsMac{{0x02, 0, 0, 0, 0, 0x11}};
inline constexpr MacAddress kHostsMac{{0x02, 0, 0, 0, 0, 0x22}};

inline MacAddress group(std::size_t number) {
  return {{0x01, 0, 0x5e, 0, static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number)}};
}

inline Frame frame_of(std::size_t bytes, unsigned mark = 1) {
  Frame frame(bytes);
  for (std::size_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>(mark + at);
  return frame;
}

/// The host's stack: what it sends is queued, what it is given and told is kept.
class MemoryNic final : public VirtualNic {
 public:
  std::deque<Frame> sending;
  frame::FrameOffload sending_offload;  ///< of every frame that is longer than the longest complete one
  std::vector<Frame> received;
  std::vector<frame::FrameOffload> received_offloads;
  NicOffloads able;
  std::vector<NicOffloads> permitted;  ///< every call
  std::vector<bool> carriers;          ///< every call
  std::vector<std::uint32_t> max_mtus;
  std::vector<MacAddress> macs;
  NicSettings system{.mac = kHostsMac, .up = true, .all_multicast = false, .multicast = {}};
  MacAddress preferred;
  Time deadline = kNever;
  bool refuses = false;
  bool reads_twice = false;  ///< what was written by the unit; a planted bug
  std::size_t reads = 0;
  std::function<void()> before_read;
  std::function<void()> before_settings;

  std::size_t read_frame(std::span<std::byte> to) override {
    ++reads;
    if (before_read) before_read();
    if (sending.empty()) return 0;
    const Frame frame = std::move(sending.front());
    sending.pop_front();
    SPLITNIC_CHECK_OP(frame.size(), <=, to.size());
    std::copy(frame.begin(), frame.end(), to.begin());
    return frame.size();
  }
  std::size_t read_unfinished(const messaging::FrameMemory& to, std::size_t max_complete_bytes,
                              frame::FrameOffload& offload) override {
    const bool is_super = !sending.empty() && sending.front().size() > max_complete_bytes;
    offload = is_super ? sending_offload : frame::FrameOffload{};
    Frame frame(to.size());
    const std::size_t bytes = read_frame(frame);
    to.write(0, std::span(frame).first(bytes));
    return bytes;
  }
  [[nodiscard]] NicOffloads offloads() const override { return able; }
  void set_offloads(const NicOffloads& to) override {
    SPLITNIC_CHECK(carriers.empty() || !carriers.back());
    permitted.push_back(to);
  }
  bool write_frame(const messaging::ReceivedFrame& frame) override {
    if (refuses) return false;
    received.emplace_back(frame.size());
    frame.copy_out(received.back());
    if (reads_twice) frame.copy_out(received.back());
    received_offloads.push_back(frame.offload);
    return true;
  }
  void set_carrier(bool carrier) override { carriers.push_back(carrier); }
  void set_max_mtu(std::uint32_t max_mtu) override { max_mtus.push_back(max_mtu); }
  void set_mac(const MacAddress& mac) override { macs.push_back(mac); }
  [[nodiscard]] MacAddress preferred_mac() const override { return preferred; }
  const NicSettings& settings(Time) override {
    if (before_settings) before_settings();
    return system;
  }
  [[nodiscard]] Time next_deadline() const override { return deadline; }
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kNicDescriptor); }
};

/// One bridge, given while `offered` and nobody has it.
class OneBridge final : public fabric::BridgeSource {
 public:
  explicit OneBridge(fabric::Bridge& bridge) : bridge_(bridge) {}
  bool offered = true;
  Time deadline = kNever;
  std::size_t given = 0;
  std::shared_ptr<fabric::Bridge> poll(Time) override {
    if (!offered || held_) return nullptr;
    held_ = true;
    ++given;
    return {&bridge_, [this](fabric::Bridge*) { held_ = false; }};
  }
  [[nodiscard]] Time next_deadline() const override { return deadline; }
  void collect_descriptors(std::vector<int>& out) const override { out.push_back(kSourceDescriptor); }

 private:
  fabric::Bridge& bridge_;
  bool held_ = false;
};

/// The I/O unit: a real session, and a record.
class TestUnit final : public messaging::SessionEvents {
 public:
  messaging::HelloGrant grant{.mac = kUnitsMac, .max_mtu = 1500, .link_up = true};
  std::optional<messaging::Refusal> refusal;  ///< of every hello
  bool refuses_requests = false;
  bool paused = false;
  std::optional<wire::LinkState> says_early;  ///< between the hello and the end of the set-up
  std::vector<wire::Statistics::Counter> statistics;
  std::vector<wire::HelloRequest> hellos;
  std::vector<wire::RequestBody> requests;
  std::vector<std::pair<wire::CfgRequest, messaging::Answer>> replies;
  std::vector<Frame> frames;
  std::vector<frame::FrameOffload> offloads;  ///< of each frame
  std::vector<std::string> downs;
  NicOffloads able;

  void start(fabric::Bridge& bridge, RandomSource& random, std::uint32_t elements) {
    messaging::SessionOptions options;
    options.offloads = able.frames;
    options.udp_segments = able.udp_segments;
    options.role = wire::Role::io_unit;
    options.name = "unit";
    options.pool_elements = elements;
    session_ = std::make_unique<messaging::Session>(options, bridge, random, *this);
  }
  void stop() { session_.reset(); }
  [[nodiscard]] messaging::Session& session() { return *session_; }
  [[nodiscard]] bool up() const { return session_ && session_->up(); }
  [[nodiscard]] Time next_deadline() const { return session_ && !paused ? session_->next_deadline() : kNever; }
  std::size_t poll(Time now) {
    if (!session_ || paused) return 0;
    const std::size_t work = session_->poll(now);
    if (says_early && session_->state() == messaging::SessionState::negotiated) {
      SPLITNIC_CHECK(session_->request(*std::exchange(says_early, std::nullopt)));
    }
    session_->flush();
    return work;
  }
  [[nodiscard]] bool send(const Frame& frame, const frame::FrameOffload& offload = {}) {
    const auto memory = session_->claim(static_cast<std::uint32_t>(frame.size()));
    if (memory.size() < frame.size()) return false;
    memory.write(0, frame);
    session_->commit(static_cast<std::uint32_t>(frame.size()), offload);
    session_->flush();
    return true;
  }
  /// The requests of one kind, in order.
  template <class Body>
  [[nodiscard]] std::vector<Body> asked() const {
    std::vector<Body> found;
    for (const auto& request : requests) {
      if (const auto* body = std::get_if<Body>(&request)) found.push_back(*body);
    }
    return found;
  }

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest& hello) override {
    hellos.push_back(hello);
    if (refusal) return tl::unexpected(*refusal);
    return grant;
  }
  void on_up(const wire::HelloReply*) override {}
  void on_down(std::string_view reason) override { downs.emplace_back(reason); }
  void on_frame(const messaging::ReceivedFrame& frame) override {
    frames.emplace_back(frame.size());
    frame.copy_out(frames.back());
    offloads.push_back(frame.offload);
  }
  messaging::Answer on_request(const wire::RequestBody& request) override {
    requests.push_back(request);
    if (refuses_requests) {
      return tl::unexpected(messaging::Refusal{wire::CfgStatus::not_permitted, "not today"});
    }
    if (const auto* body = std::get_if<wire::SetMacAddress>(&request)) return wire::MacAddressReply{body->address};
    if (const auto* body = std::get_if<wire::SetMtu>(&request)) return wire::MtuReply{body->bytes};
    if (std::holds_alternative<wire::StatisticsReport>(request) ||
        std::holds_alternative<wire::StatisticsClear>(request)) {
      return wire::Statistics{statistics};
    }
    return wire::Acknowledged{};
  }
  void on_reply(wire::CfgRequest request, const messaging::Answer& answer) override {
    replies.emplace_back(request, answer);
  }

  std::unique_ptr<messaging::Session> session_;
};

struct RecordedNotices final : Notices {
  std::vector<std::string> lines;
  std::vector<std::string> sources;  // of each line; empty: none
  std::vector<std::string> states;
  void state(const std::string& text) override { states.push_back(text); }
  void notice(const std::string& line) override { notice_from("", line); }
  void notice_from(std::string_view source, const std::string& line) override {
    sources.emplace_back(source);
    lines.push_back(line);
  }
  /// Of the first line with this text.
  [[nodiscard]] std::string source_of(const std::string& text) const {
    const auto found = std::ranges::find_if(lines, [&](const auto& line) { return line.find(text) != line.npos; });
    return found != lines.end() ? sources[static_cast<std::size_t>(found - lines.begin())] : "no such line";
  }
  [[nodiscard]] std::size_t count(const std::string& text) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }
};

/// A bridge without a fault or a delay.
inline fabric::SimBridgeOptions plain_bridge() {
  return {.write_delay_max{},
          .scratchpad_delay_max{},
          .doorbell_delay_max{},
          .torn_permille = 0,
          .doorbell_lost_permille = 0,
          .doorbell_spurious_permille = 0,
          .memory_scribbled = false};
}

inline messaging::SessionOptions host_options() {
  messaging::SessionOptions options;
  options.name = "host";
  options.pool_elements = 8;
  return options;
}

/// The driver, its NIC and its unit, driven by simulated time.
class DriverBench : public splitnic::test::SettledTime {
 public:
  explicit DriverBench(const messaging::SessionOptions& options = host_options(), std::uint32_t unit_elements = 8,
                       const NicOffloads& of_nic = {})
      : random(1), pair(plain_bridge(), random), bridges(pair.end(0)), unit_elements_(unit_elements) {
    nic.able = of_nic;
    driver_ = std::make_unique<HostDriver>(options, nic, bridges, random, notices);
  }

  SeededRandom random;
  fabric::SimBridgePair pair;
  splitnic::test::LoadsOnce loads{pair.end(0).local_memory(), pair.end(1).local_memory()};
  OneBridge bridges;
  MemoryNic nic;
  TestUnit unit;
  RecordedNotices notices;

  [[nodiscard]] HostDriver& driver() { return *driver_; }

  void start_unit() { unit.start(pair.end(1), random, unit_elements_); }
  /// The unit starts and the session comes up.
  void come_up() {
    start_unit();
    SPLITNIC_CHECK(run_until([&] { return driver_->up() && unit.up(); }));
    settle();
  }
  std::size_t step() override {
    const std::size_t work = driver_->poll(now()) + unit.poll(now());
    pair.advance(now());
    return work;
  }
  void from_unit(const Frame& frame) {
    SPLITNIC_CHECK(unit.send(frame));
    settle();
  }
  [[nodiscard]] std::vector<int> descriptors() const {
    std::vector<int> descriptors;
    driver_->collect_descriptors(descriptors);
    return descriptors;
  }

 private:
  [[nodiscard]] Time next_event() const override {
    return std::min({driver_->next_deadline(), unit.next_deadline(), pair.next_event()});
  }

  std::uint32_t unit_elements_;
  std::unique_ptr<HostDriver> driver_;
};

}  // namespace splitnic::host::test
