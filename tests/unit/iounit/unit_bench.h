#pragma once

// An I/O unit in simulated time: a LAN in memory, hosts that are sessions on simulated bridges, and every counter by
// its name.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "iounit/io_unit.h"
#include "messaging/session.h"
#include "tests/sim_bridge/sim_bridge.h"
#include "tests/unit/common/settled_time.h"
#include "tests/unit/loads_once.h"

namespace splitnic::iounit::test {

namespace wire = messaging::wire;
using Frame = std::vector<std::byte>;

inline MacAddress station(unsigned number) { return {{0x02, 0, 0, 0, 0x77, static_cast<std::uint8_t>(number)}}; }
inline MacAddress group(unsigned number) { return {{0x01, 0, 0x5e, 0, 0, static_cast<std::uint8_t>(number)}}; }

struct FrameOptions {
  std::vector<std::uint16_t> vlans{};  ///< tags, outermost first
  std::size_t payload_bytes = 46;      ///< what counts in an MTU
};

/// A frame of an experimental EtherType.
inline Frame make_frame(const MacAddress& to, const MacAddress& from, const FrameOptions& options = {}) {
  Frame frame;
  const auto put = [&](unsigned octet) { frame.push_back(static_cast<std::byte>(octet & 0xffU)); };
  for (const auto octet : to.octets) put(octet);
  for (const auto octet : from.octets) put(octet);
  for (const unsigned vlan : options.vlans) {
    for (const unsigned octet : {0x81U, 0x00U, vlan >> 8U, vlan & 0xffU}) put(octet);
  }
  for (const unsigned octet : {0x88U, 0xb5U}) put(octet);
  for (std::size_t at = 0; at < options.payload_bytes; ++at) put(static_cast<unsigned>(at));
  return frame;
}

/// A LAN without a wire: what its stations send is queued, what the unit sends is kept.
class MemoryLan final : public LanEngine {
 public:
  std::deque<Frame> arriving;
  std::optional<frame::FrameOffload> offload;     ///< of every arriving frame, if the LAN has metadata
  std::deque<frame::FrameOffload> next_offloads;  ///< of the next ones, instead
  std::vector<Frame> sent;
  std::vector<std::size_t> sessions;  ///< every number that the unit reported
  std::size_t flushes = 0;
  bool has_carrier = true;
  bool refuses = false;
  std::vector<frame::SegmentKind> takes;           ///< what it finishes itself; none: it takes complete frames only
  std::vector<frame::FrameOffload> sent_offloads;  ///< of each frame in `sent`
  std::uint32_t lan_mtu = 1500;
  std::function<void()> before_receive;
  bool reads_apart = false;    ///< it asks where to put the payload of long frames, and sends frames in parts
  std::size_t sent_apart = 0;  ///< of `sent`: in parts
  std::size_t read_apart = 0;  ///< of `arriving`: to where the unit wanted them

  std::size_t receive(LanSink& sink, std::size_t budget) override {
    if (before_receive) before_receive();
    std::size_t done = 0;
    for (; done < budget && !arriving.empty(); ++done) {
      const Frame frame = std::move(arriving.front());
      arriving.pop_front();
      if (!next_offloads.empty()) {
        offload = next_offloads.front();
        next_offloads.pop_front();
      }
      ++counters_.rx_frames;
      if (receive_apart(sink, frame)) continue;
      if (offload) {
        sink.on_lan_frame(frame, *offload);
      } else {
        sink.on_lan_frame(frame);
      }
    }
    return done;
  }
  bool send(std::span<const std::byte> frame) override { return send_unfinished(frame, {}); }
  [[nodiscard]] bool takes_offloads(frame::SegmentKind kind) const override {
    return std::ranges::find(takes, kind) != takes.end();
  }
  bool send_unfinished(std::span<const std::byte> frame, const frame::FrameOffload& unfinished) override {
    SPLITNIC_CHECK(!unfinished.asks_for_work() || takes_offloads(unfinished.kind));
    if (refuses) return ++counters_.tx_errors, false;
    ++counters_.tx_frames;
    sent.emplace_back(frame.begin(), frame.end());
    sent_offloads.push_back(unfinished);
    return true;
  }
  [[nodiscard]] bool gathers(std::span<const std::byte>, std::size_t frame_bytes) const override {
    return reads_apart && frame_bytes > kLongFrameBytes;
  }
  bool send_gathered(std::span<const std::byte> head, std::span<const iovec> payload,
                     const frame::FrameOffload& unfinished) override {
    Frame frame(head.begin(), head.end());
    for (const iovec& part : payload) {
      const auto* const from = static_cast<const std::byte*>(part.iov_base);
      frame.insert(frame.end(), from, from + part.iov_len);
    }
    SPLITNIC_CHECK(gathers(head, frame.size()));
    ++sent_apart;
    return send_unfinished(frame, unfinished);
  }
  void flush() override { ++flushes; }
  void poll(Time) override {}
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  [[nodiscard]] bool carrier() const override { return has_carrier; }
  [[nodiscard]] std::uint32_t mtu() const override { return lan_mtu; }
  void on_sessions(std::size_t count, Time) override { sessions.push_back(count); }
  [[nodiscard]] const LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>&) const override {}
  [[nodiscard]] std::string name() const override { return "memory"; }

 private:
  /// False: the unit has no place for the frame.
  bool receive_apart(LanSink& sink, const Frame& frame) {
    if (!reads_apart || !offload || frame.size() <= kLongFrameBytes) return false;
    // What the unit must not read: bytes of other frames.
    Frame seen(frame.size(), std::byte{0xee});
    std::copy_n(frame.begin(), kHeadBytes, seen.begin());
    const auto place = sink.place_for(seen, kHeadBytes, *offload);
    if (place.empty()) return false;
    SPLITNIC_CHECK_OP(place.size(), ==, frame.size());
    place.write(kHeadBytes, std::span(frame).subspan(kHeadBytes));
    ++read_apart;
    sink.on_placed_frame(seen, kHeadBytes, *offload);
    return true;
  }

  LanCounters counters_;
};

/// The unit's bridges: those that a test has put in.
class BridgeQueue final : public fabric::BridgeSource {
 public:
  std::deque<std::shared_ptr<fabric::Bridge>> waiting;
  std::shared_ptr<fabric::Bridge> poll(Time) override {
    if (waiting.empty()) return nullptr;
    auto next = std::move(waiting.front());
    waiting.pop_front();
    return next;
  }
  [[nodiscard]] Time next_deadline() const override { return kNever; }
  void collect_descriptors(std::vector<int>&) const override {}
};

struct RecordedNotices final : Notices {
  std::vector<std::string> lines;
  Notices* also = nullptr;  ///< gets all of them, too
  void notice(const std::string& line) override {
    lines.push_back(line);
    if (also != nullptr) also->notice(line);
  }
  void recurring_notice(const std::string& line) override {
    lines.push_back(line);
    if (also != nullptr) also->recurring_notice(line);
  }
  void notice_from(std::string_view source, const std::string& line) override {
    lines.push_back(line);
    if (also != nullptr) also->notice_from(source, line);
  }
  void recurring_notice_from(std::string_view source, const std::string& line) override {
    lines.push_back(line);
    if (also != nullptr) also->recurring_notice_from(source, line);
  }
  [[nodiscard]] bool any_contains(const std::string& text) const {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
};

/// Options under which every host may send from foreign addresses and be promiscuous.
inline IoUnitOptions trusting_options() {
  IoUnitOptions options;
  options.policy.others.foreign_sources = true;
  options.policy.others.promiscuous = true;
  return options;
}

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

inline messaging::SessionOptions host_named(const std::string& name) {
  messaging::SessionOptions options;
  options.name = name;
  options.pool_elements = 16;
  return options;
}

/// A host: a real session in the host's role, and a record of what it receives. Without options.name it never says
/// anything: a bridge without a session.
class TestHost final : public messaging::SessionEvents {
 public:
  TestHost(const messaging::SessionOptions& options, RandomSource& random,
           const fabric::SimBridgeOptions& bridge = plain_bridge())
      : random_(random), pair_(bridge, random) {
    if (!options.name.empty()) start(options);
  }
  void start(const messaging::SessionOptions& options) {
    name = options.name;
    session_ = std::make_unique<messaging::Session>(options, pair_.end(0), random_, *this);
  }

  std::string name;
  std::vector<Frame> frames;
  std::vector<frame::FrameOffload> offloads;  ///< of each frame
  std::vector<wire::HelloReply> hellos;
  std::vector<std::string> downs;
  std::vector<wire::RequestBody> requests;  ///< all but those for statistics
  wire::Statistics statistics;              ///< what it answers them with
  std::size_t statistics_asked = 0;
  std::vector<std::pair<wire::CfgRequest, messaging::Answer>> replies;
  bool paused = false;    ///< its process is stopped
  bool released = false;  ///< the unit has let go of its bridge

  [[nodiscard]] messaging::Session& session() { return *session_; }
  [[nodiscard]] bool up() const { return session_ && session_->up(); }
  [[nodiscard]] MacAddress mac() const { return hellos.back().assigned_mac; }
  fabric::SimBridgePair& pair() { return pair_; }
  std::shared_ptr<fabric::Bridge> unit_end() {
    released = false;
    return {&pair_.end(1), [this](fabric::Bridge*) { released = true; }};
  }

  std::size_t poll(Time now) {
    pair_.advance(now);
    if (!session_ || paused) return 0;
    const std::size_t work = session_->poll(now);
    session_->flush();
    return work;
  }
  [[nodiscard]] Time next_deadline() const { return session_ && !paused ? session_->next_deadline() : kNever; }

  /// False: no element is free, or the frame is longer than one.
  [[nodiscard]] bool send(const Frame& frame, const frame::FrameOffload& offload = {}) {
    const auto memory = session_->claim(session_->longest_frame_bytes());
    if (memory.size() < frame.size()) return false;
    memory.write(0, frame);
    session_->commit(static_cast<std::uint32_t>(frame.size()), offload);
    session_->flush();
    return true;
  }
  /// The process dies: nothing is said any more, and the bridge goes down.
  void die() {
    session_.reset();
    pair_.cut();
  }

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest&) override {
    return tl::unexpected(messaging::Refusal{});
  }
  void on_up(const wire::HelloReply* reply) override { hellos.push_back(*reply); }
  void on_down(std::string_view reason) override { downs.emplace_back(reason); }
  void on_frame(const messaging::ReceivedFrame& frame) override {
    frames.emplace_back(frame.size());
    frame.copy_out(frames.back());
    offloads.push_back(frame.offload);
  }
  messaging::Answer on_request(const wire::RequestBody& request) override {
    if (std::holds_alternative<wire::StatisticsReport>(request)) {
      ++statistics_asked;
      return statistics;
    }
    requests.push_back(request);
    if (std::holds_alternative<wire::StatisticsClear>(request)) return statistics;
    return wire::Acknowledged{};
  }
  void on_reply(wire::CfgRequest request, const messaging::Answer& answer) override {
    replies.emplace_back(request, answer);
  }

  RandomSource& random_;
  fabric::SimBridgePair pair_;
  splitnic::test::LoadsOnce loads_{pair_.end(0).local_memory(), pair_.end(1).local_memory()};
  std::unique_ptr<messaging::Session> session_;
};

using Drops = std::map<std::string, std::uint64_t>;

/// The unit's side of the host that is up under that name; null: none is.
[[nodiscard]] inline AttachedHost* attached_to(IoUnit& unit, const std::string& name) {
  for (const auto& host : unit.hosts()) {
    if (host && host->up() && host->name() == name) return host.get();
  }
  return nullptr;
}

/// Adds every counter of a lost frame that is not zero: "lan_...", "tx_errors", "HOST/to_host_...",
/// "HOST/from_host_...".
inline void add_drops(Drops& all, const IoUnit& unit) {
  const auto add = [&](const std::string& name, std::uint64_t count) {
    if (count != 0) all[name] += count;
  };
  for (std::size_t index = 0; index < kLanDrops; ++index) {
    const auto cause = static_cast<LanDrop>(index);
    add(std::string(to_string(cause)), unit.drops(cause));
  }
  for (const auto& host : unit.hosts()) {
    for (std::size_t index = 0; host && index < kHostDrops; ++index) {
      const auto cause = static_cast<HostDrop>(index);
      add(host->name() + "/" + std::string(to_string(cause)), host->drops(cause));
    }
  }
}

/// The hosts of one unit or of several, and what is done with them, driven by simulated time.
class HostsBench : public splitnic::test::SettledTime {
 public:
  SeededRandom random;
  RecordedNotices notices;

  /// A frame of a host arrives and everything that follows from it happens.
  void from_host(TestHost& host, const Frame& frame, std::size_t times = 1, const frame::FrameOffload& offload = {}) {
    for (std::size_t i = 0; i < times; ++i) {
      SPLITNIC_CHECK(host.send(frame, offload));
      settle();
    }
  }
  /// A request of a host, and the unit's answer to it.
  messaging::Answer ask(TestHost& host, const wire::RequestBody& body) {
    const std::size_t before = host.replies.size();
    SPLITNIC_CHECK(host.session().request(body));
    SPLITNIC_CHECK(run_until([&] { return host.replies.size() > before; }));
    return host.replies.back().second;
  }
  [[nodiscard]] bool grants(TestHost& host, const wire::RequestBody& body) { return ask(host, body).has_value(); }

 protected:
  explicit HostsBench(std::uint64_t seed) : random(seed) {}

  /// A host that connects now. Owned by the bench, for as long as it lives.
  TestHost& add_host(BridgeQueue& bridges, const messaging::SessionOptions& options,
                     const fabric::SimBridgeOptions& bridge) {
    hosts_.push_back(std::make_unique<TestHost>(options, random, bridge));
    bridges.waiting.push_back(hosts_.back()->unit_end());
    return *hosts_.back();
  }
  /// Between the two, the units are polled.
  std::size_t poll_hosts() {
    std::size_t work = 0;
    for (auto& host : hosts_) work += host->poll(now());
    return work;
  }
  void advance_bridges() {
    for (auto& host : hosts_) host->pair().advance(now());
  }
  [[nodiscard]] Time next_of_hosts() const {
    Time next = kNever;
    for (const auto& host : hosts_) next = std::min({next, host->next_deadline(), host->pair().next_event()});
    return next;
  }

  std::vector<std::unique_ptr<TestHost>> hosts_;  // outlive the units, which hold their bridges
};

/// The unit, its LAN and its hosts, driven by simulated time.
class UnitBench : public HostsBench {
 public:
  explicit UnitBench(IoUnitOptions options = {}, std::uint32_t lan_mtu = 1500, std::uint64_t seed = 1)
      : HostsBench(seed), unit_options_(std::move(options)) {
    lan.lan_mtu = lan_mtu;
    unit_options_.session.name = "unit";
    unit_options_.session.pool_elements = unit_options_.session.offloads ? 128 : 16;
    unit_ = std::make_unique<IoUnit>(unit_options_, lan, bridges_, random, notices);
  }

  MemoryLan lan;

  [[nodiscard]] IoUnit& unit() { return *unit_; }

  /// A host that connects now. Owned by the bench, for as long as it lives.
  TestHost& connect(const messaging::SessionOptions& options, const fabric::SimBridgeOptions& bridge = plain_bridge()) {
    return add_host(bridges_, options, bridge);
  }
  TestHost& connect(const std::string& name) { return connect(host_named(name)); }
  /// A host whose bridge reports this user.
  TestHost& connect_as(uid_t user, const std::string& name, gid_t group = 100) {
    auto bridge = plain_bridge();
    bridge.processes[0] = fabric::BridgePeer{.pid = 1, .uid = user, .gid = group};
    return connect(host_named(name), bridge);
  }
  /// A further queue of the host whose bridge has this cookie. Owned by the bench.
  TestHost& connect_queue(const std::string& name, std::uint64_t cookie) {
    auto bridge = plain_bridge();
    bridge.group = {.cookie = cookie, .further = true};
    return connect(host_named(name), bridge);
  }
  void connect_again(TestHost& host) { connect_again(host.unit_end()); }
  void connect_again(std::shared_ptr<fabric::Bridge> unit_end) { bridges_.waiting.push_back(std::move(unit_end)); }
  /// One that connects and comes up.
  TestHost& host_up(const messaging::SessionOptions& options) { return wait_up(connect(options)); }
  TestHost& host_up_as(uid_t user, const std::string& name, gid_t group = 100) {
    return wait_up(connect_as(user, name, group));
  }
  TestHost& wait_up(TestHost& host) {
    SPLITNIC_CHECK(run_until([&] { return host.up() && attached(host.name) != nullptr; }));
    settle();
    return host;
  }
  TestHost& host_up(const std::string& name) { return host_up(host_named(name)); }
  /// A bridge whose other end says nothing.
  TestHost& silent_bridge() {
    messaging::SessionOptions options;
    options.name.clear();
    return connect(options);
  }

  /// The unit's side of the host that is up under that name; null: none is.
  [[nodiscard]] AttachedHost* attached(const std::string& name) { return attached_to(*unit_, name); }
  [[nodiscard]] std::size_t attached_count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(unit_->hosts(), [](const auto& host) { return host != nullptr; }));
  }

  /// Whether a doorbell or a link change is pending at this bridge, the unit's end of a host's.
  [[nodiscard]] bool rung(const fabric::Bridge& end) {
    return std::ranges::any_of(
        hosts_, [&](const auto& host) { return &host->pair().end(1) == &end && host->pair().wake_pending(1); });
  }
  std::size_t step() override {
    const std::size_t work = poll_hosts() + unit_->poll(now());
    advance_bridges();
    return work;
  }

  /// A frame of the LAN arrives and everything that follows from it happens.
  void from_lan(const Frame& frame, std::size_t times = 1) {
    for (std::size_t i = 0; i < times; ++i) lan.arriving.push_back(frame);
    settle();
  }
  [[nodiscard]] Drops drops() {
    Drops all;
    add_drops(all, *unit_);
    return all;
  }

  /// Both sides of the sum that IoUnitCounters promises: frames in and their copies; frames delivered, and those
  /// dropped or merged into others.
  struct Sum {
    std::uint64_t in = 0;
    std::uint64_t delivered = 0;
    std::uint64_t dropped = 0;
    friend bool operator==(const Sum&, const Sum&) = default;
  };
  [[nodiscard]] Sum sum() {
    const auto& counters = unit_->counters();
    Sum sum{.in = counters.lan_frames + counters.copies + counters.departed_rx_frames,
            .delivered = lan.counters().tx_frames + counters.departed_tx_frames,
            .dropped = counters.departed_drops + counters.lan_merged + counters.to_lan_merged};
    for (const auto& host : unit_->hosts()) {
      if (!host) continue;
      sum.in += host->counters().rx_frames;
      sum.delivered += host->counters().tx_frames;
    }
    for (const auto& [name, count] : drops()) sum.dropped += count;
    return sum;
  }

 private:
  [[nodiscard]] Time next_event() const override { return std::min(unit_->next_deadline(), next_of_hosts()); }
  [[nodiscard]] bool quiet() const override { return lan.arriving.empty(); }

  IoUnitOptions unit_options_;
  BridgeQueue bridges_;
  std::unique_ptr<IoUnit> unit_;
};

}  // namespace splitnic::iounit::test
