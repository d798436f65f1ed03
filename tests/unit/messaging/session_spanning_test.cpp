// Frames with a virtio-net header, which may span elements: negotiated, moved, and refused where a peer lies.
#include <catch2/catch.hpp>

#include "messaging/session.h"
#include "scripted_peer.h"
#include "tests/sim_bridge/sim_bridge.h"

namespace splitnic::messaging::session_spanning_test {

using test::RecordedEvents;
using test::ScriptedHost;

namespace {

constexpr std::uint32_t kSuper = wire::kMaxSuperFrameBytes;
constexpr frame::FrameOffload kTcp{true, 34, 16, frame::SegmentKind::tcp_v4, 1448, 66};
constexpr frame::FrameOffload kUdp{true, 34, 6, frame::SegmentKind::udp, 1200, 42};
constexpr frame::FrameOffload kChecksum{true, 34, 16};

SessionOptions options_of(wire::Role role) {
  SessionOptions options;
  options.role = role;
  options.name = role == wire::Role::host ? "host" : "unit";
  options.offloads = true;
  options.udp_segments = true;
  return options;
}

/// A host and a unit with shared memory between them, or a simulated bridge, in simulated time.
class TwoSessions {
 public:
  enum class Window : std::uint8_t { memory, posted };
  explicit TwoSessions(const SessionOptions& host = options_of(wire::Role::host),
                       const SessionOptions& unit = options_of(wire::Role::io_unit),
                       std::size_t bridge_bytes = 4U << 20U, Window window = Window::memory) {
    if (window == Window::memory) {
      auto ends = fabric::shm_pair(bridge_bytes, bridge_bytes);
      REQUIRE(ends.has_value());
      shared_ = std::move(*ends);
    } else {
      simulated_.emplace(fabric::SimBridgeOptions{.local_bytes = {bridge_bytes, bridge_bytes}}, random_);
    }
    unit_ = std::make_unique<Session>(unit, simulated_ ? simulated_->end(0) : *shared_.first, random_, unit_events);
    host_ = std::make_unique<Session>(host, simulated_ ? simulated_->end(1) : *shared_.second, random_, host_events);
    REQUIRE(run_until([&] { return host_->up() && unit_->up(); }));
  }
  [[nodiscard]] Session& host() { return *host_; }
  [[nodiscard]] Session& unit() { return *unit_; }
  void run(Duration time) {
    for (const Time end = now_ + time; !run_until([&] { return now_ >= end; });) {
    }
  }
  bool run_until(const std::function<bool()>& condition) {
    for (const Time end = now_ + std::chrono::seconds(2); now_ < end; now_ += std::chrono::microseconds(20)) {
      if (condition()) return true;
      if (simulated_) simulated_->advance(now_);
      for (Session* session : {host_.get(), unit_.get()}) {
        session->poll(now_);
        session->flush();
      }
    }
    return condition();
  }
  RecordedEvents host_events;
  RecordedEvents unit_events;

 private:
  SeededRandom random_{11};
  std::pair<std::unique_ptr<fabric::Bridge>, std::unique_ptr<fabric::Bridge>> shared_;
  std::optional<fabric::SimBridgePair> simulated_;
  std::unique_ptr<Session> unit_;
  std::unique_ptr<Session> host_;
  Time now_{};
};

std::vector<std::byte> frame_of(std::uint32_t bytes, std::uint32_t mark) {
  std::vector<std::byte> frame(bytes);
  for (std::uint32_t at = 0; at < bytes; ++at) frame[at] = static_cast<std::byte>((at >> 4U) + at + mark);
  return frame;
}

bool send(Session& session, std::span<const std::byte> frame, const frame::FrameOffload& offload, std::uint32_t room) {
  const auto memory = session.claim(room);
  if (memory.empty()) return false;
  REQUIRE(memory.size() >= frame.size());
  memory.write(0, frame);
  session.commit(static_cast<std::uint32_t>(frame.size()), offload);
  return true;
}

SessionOptions scripted_unit() {
  SessionOptions options = ScriptedHost::unit_options();
  options.pool_elements = 128;
  options.offloads = true;
  return options;
}

/// A host that has agreed on offloads, but not on super-frames of UDP. It has a pool for the unit.
struct OffloadingHost : ScriptedHost {
  /// granted: of the elements, which then are in the bridge's memory; 0: they are in the host's own.
  explicit OffloadingHost(std::uint32_t elements = 64, std::uint32_t granted = 0) : ScriptedHost(scripted_unit()) {
    features = wire::kFeatureOffloads;
    REQUIRE(come_up_to_pools());
    if (granted > 0) {
      advertise_bridge_memory(0, elements, granted);
    } else {
      advertise_memory(0, elements);
    }
    request(wire::LinkState{.up = true});
    REQUIRE(run_until([&] { return session().up(); }));
    REQUIRE(session().offloads());
  }
  void indicate_element(std::uint32_t element, std::uint32_t length) { indicate({unit_pool()->pool, element, length}); }
  /// A frame of the unit's pool, with this header.
  void write_with(const frame::VirtioNetHeader& header, std::uint32_t element, std::uint32_t bytes) {
    write(element, bytes, wire::encode_immediate({unit_pool()->pool, element, bytes}),
          std::as_bytes(std::span(&header, 1)));
  }
};

}  // namespace

TEST_CASE("frames of every length arrive whole with their metadata, both ways", "[messaging][spanning]") {
  const auto window = GENERATE(TwoSessions::Window::memory, TwoSessions::Window::posted);
  TwoSessions ends(options_of(wire::Role::host), options_of(wire::Role::io_unit), 4U << 20U, window);
  REQUIRE(ends.host().offloads());
  REQUIRE(ends.unit().udp_segments());
  REQUIRE(ends.host().longest_frame_bytes() == kSuper);
  struct Row {
    std::uint32_t bytes;
    frame::FrameOffload offload;
  };
  const std::vector<Row> rows{{14, {}},      {1522, {}},    {1522, kChecksum}, {1526, kTcp}, {1527, kTcp},
                              {3062, kTcp},  {3063, kUdp},  {20000, kTcp},     {60, {}},     {kSuper - 1, kUdp},
                              {65526, kTcp}, {65527, kTcp}, {kSuper, kTcp},    {1514, {}},   {64, kChecksum}};
  const bool from_host = GENERATE(true, false);
  // The room that was claimed may be larger than the frame: a TAP's frames have no length before they are read.
  const bool exact = GENERATE(true, false);
  Session& from = from_host ? ends.host() : ends.unit();
  RecordedEvents& to = from_host ? ends.unit_events : ends.host_events;
  std::uint32_t mark = 0;
  // Enough laps that frames of every length go round the end of the ring.
  for (int lap = 0; lap < 12; ++lap) {
    for (const Row& row : rows) {
      const auto frame = frame_of(row.bytes, ++mark);
      to.frames.clear();
      to.offloads.clear();
      REQUIRE(ends.run_until([&] { return send(from, frame, row.offload, exact ? row.bytes : kSuper); }));
      REQUIRE(ends.run_until([&] { return !to.frames.empty(); }));
      REQUIRE(to.frames.front() == frame);
      REQUIRE(to.offloads.front() == row.offload);
    }
  }
  REQUIRE(from.counters().tx_frames == 12 * rows.size());
  for (const Session* end : {&ends.host(), &ends.unit()}) {
    CHECK(end->counters().lost_elements == 0);
    CHECK(end->counters().rx_bad_length + end->counters().rx_bad_offload + end->counters().faults == 0);
  }
  REQUIRE(ends.run_until([&] { return from.credits().free == from.credits().elements; }));
}

TEST_CASE("a batch of short and long frames keeps its order", "[messaging][spanning]") {
  const std::uint32_t long_bytes = GENERATE(9000U, kSuper);
  TwoSessions ends;
  std::vector<std::vector<std::byte>> sent;
  for (std::uint32_t number = 0; number < 6; ++number) {
    sent.push_back(frame_of(number % 2 == 0 ? 60 : long_bytes, number));
    REQUIRE(send(ends.host(), sent.back(), number % 2 == 0 ? frame::FrameOffload{} : kTcp, kSuper));
  }
  REQUIRE(ends.run_until([&] { return ends.unit_events.frames.size() == sent.size(); }));
  CHECK(ends.unit_events.frames == sent);
  // The longest don't fit immediate data. What follows one may not overtake it, as it waits for the end of the batch.
  CHECK(ends.host().counters().writes_with_immediate_sent == (long_bytes == kSuper ? 1 : 6));
  CHECK(ends.host().counters().messages_sent[wire::index_of(wire::Function::buffer_rdma_indicate)] ==
        (long_bytes == kSuper ? 1 : 0));
  CHECK(ends.unit().counters().lost_elements == 0);
}

TEST_CASE("a sender of long frames waits for elements, and asks for another pool", "[messaging][spanning]") {
  TwoSessions ends;
  ends.run(std::chrono::milliseconds(20));  // a session asks at most every 10 ms
  const auto frame = frame_of(kSuper, 1);
  std::uint32_t sent = 0;
  while (send(ends.host(), frame, kTcp, kSuper)) ++sent;
  REQUIRE(sent == 256 * 1536 / wire::kMaxFrameBytes);  // a pool's
  REQUIRE(ends.run_until([&] { return ends.host().credits().elements > 256; }));
  REQUIRE(ends.run_until([&] { return ends.unit_events.frames.size() == sent; }));
  REQUIRE(send(ends.host(), frame, kTcp, kSuper));
  CHECK(ends.unit().counters().faults == 0);
}

TEST_CASE("an end adds no pool with which it had more elements than its peer takes", "[messaging][spanning]") {
  SessionOptions host = options_of(wire::Role::host);
  SessionOptions unit = options_of(wire::Role::io_unit);
  host.max_mtu = unit.max_mtu = wire::kMinMtu;  // elements of 128 bytes, so that there is memory for eight pools
  unit.pool_elements = 16384;
  TwoSessions ends(host, unit, 32U << 20U);
  for (int asked = 0; asked < 8; ++asked) {
    ends.host().want_elements();
    ends.run(std::chrono::milliseconds(11));
  }
  CHECK(ends.host().credits().elements == wire::Limits{}.pool_elements);
  CHECK(ends.host().counters().faults == 0);
  CHECK(ends.host_events.downs.empty());
}

TEST_CASE("offloads need both ends, mode R, a data channel and pools with room", "[messaging][spanning]") {
  struct Row {
    const char* what;
    void (*change)(SessionOptions& host, SessionOptions& unit);
    bool offloads;
    bool udp;
  };
  const std::vector<Row> rows{
      {"both", [](auto&, auto&) {}, true, true},
      {"a host without", [](auto& host, auto&) { host.offloads = false; }, false, false},
      {"a unit without", [](auto&, auto& unit) { unit.offloads = false; }, false, false},
      {"a host without UDP", [](auto& host, auto&) { host.udp_segments = false; }, true, false},
      {"a unit without UDP", [](auto&, auto& unit) { unit.udp_segments = false; }, true, false},
      {"mode S", [](auto& host, auto&) { host.mode = wire::Mode::send; }, false, false},
      {"a unit that insists on mode S",
       [](auto&, auto& unit) {
         unit.mode = wire::Mode::send;
         unit.insist_on_mode = true;
       },
       false, false},
      {"a host without a data channel", [](auto& host, auto&) { host.data_channel = false; }, false, false},
      {"a unit without a data channel", [](auto&, auto& unit) { unit.data_channel = false; }, false, false},
      {"a pool of the host that is too small", [](auto& host, auto&) { host.pool_elements = 85; }, false, false},
      {"a pool of the unit that is too small", [](auto&, auto& unit) { unit.pool_elements = 85; }, false, false},
      {"pools that just have room", [](auto& host, auto& unit) { host.pool_elements = unit.pool_elements = 86; }, true,
       true},
      {"a pool that has room for the host's MTU, but not for the agreed one",
       [](auto& host, auto&) {
         host.max_mtu = 9216;
         host.pool_elements = 16;
       },
       true, true},
  };
  for (const Row& row : rows) {
    DYNAMIC_SECTION(row.what) {
      SessionOptions host = options_of(wire::Role::host);
      SessionOptions unit = options_of(wire::Role::io_unit);
      row.change(host, unit);
      TwoSessions ends(host, unit);
      for (Session* end : {&ends.host(), &ends.unit()}) {
        CHECK(end->offloads() == row.offloads);
        CHECK(end->udp_segments() == row.udp);
        CHECK(end->longest_frame_bytes() == (row.offloads ? kSuper : 1522));
        CHECK(end->claim(kSuper).size() == (row.offloads ? kSuper : 1522));
        CHECK(end->claim().size() == 1522);
      }
      const auto frame = frame_of(1522, 3);
      REQUIRE(send(ends.host(), frame, {}, 1522));
      REQUIRE(send(ends.unit(), frame, {}, 1522));
      REQUIRE(ends.run_until([&] { return !ends.unit_events.frames.empty() && !ends.host_events.frames.empty(); }));
      CHECK(ends.unit_events.frames.front() == frame);
      CHECK(ends.host_events.frames.front() == frame);
    }
  }
}

TEST_CASE("a frame that goes in cells spans the elements of a pool, too", "[messaging][spanning]") {
  OffloadingHost host;  // its pool is in memory of its own process
  for (std::uint32_t lap = 0; lap < 3; ++lap) {
    const auto frame = frame_of(65530, lap);
    const std::uint32_t elements = elements_for(65540, 1536);
    const std::uint32_t first = lap * elements % 64;
    REQUIRE(host.run_until([&] { return send(host.session(), frame, kTcp, kSuper - 20); }));
    host.session().flush();
    const auto lists = [&] {
      std::vector<wire::Indication> all;
      for (const auto& bytes : host.received_data.messages) {
        const auto message = wire::decode(bytes, {});
        const auto* list = message ? std::get_if<wire::BufferRdmaIndicate>(&*message) : nullptr;
        if (list != nullptr) all.push_back(list->indications[0]);
      }
      return all;
    };
    REQUIRE(host.run_until([&] { return lists().size() == lap + 1; }));
    REQUIRE(lists().back() == wire::Indication{wire::PoolNumber{0}, first, 65540});
    std::vector<std::byte> arrived;
    for (std::size_t at = 0; at < frame.size(); ++at) {
      arrived.push_back(host.memory()[(first * 1536 + 10 + at) % (64 * 1536)]);
    }
    REQUIRE(arrived == frame);
    // The host returns the elements, in at most two runs.
    const std::uint32_t before_end = std::min(elements, 64 - first);
    std::vector<wire::ElementRun> runs{{wire::PoolNumber{0}, first, before_end}};
    if (before_end < elements) runs.push_back({wire::PoolNumber{0}, 0, elements - before_end});
    host.say([&](auto out) {
      wire::UpdateWriter writer(out, 2);
      for (const auto& run : runs) REQUIRE(writer.add(run));
      return writer.finish().size();
    });
  }
  CHECK(host.session().counters().writes_with_immediate_sent == 0);
  CHECK(host.events.downs.empty());
}

TEST_CASE("an end that may store in one part of its claim alone stages the frame", "[messaging][spanning]") {
  OffloadingHost host(64, 43);  // the elements of one frame
  Session& session = host.session();
  const auto frame = frame_of(65530, 1);
  REQUIRE(send(session, frame, kTcp, kSuper - 20));
  session.flush();
  host.say([&](auto out) {
    wire::UpdateWriter writer(out, 1);
    REQUIRE(writer.add({wire::PoolNumber{0}, 0, 43}));
    return writer.finish().size();
  });
  REQUIRE(host.run_until([&] { return session.credits().free == 64; }));
  // The next frame begins behind what the host has granted, and ends in it.
  const auto memory = session.claim(kSuper - 20);
  CHECK(memory.bytes.size() == kSuper - 20);
  REQUIRE(memory.rest.empty());
  REQUIRE(send(session, frame, kTcp, kSuper - 20));
  session.flush();
  // The host's adapter refuses it, which ends the host's session.
  REQUIRE(host.run_until([&] { return !session.up(); }));
  CHECK(host.events.downs.size() == 1);
}

TEST_CASE("a sender that sleeps without buffers for its next frame is rung when the peer has the last ones",
          "[messaging][spanning][doorbell]") {
  OffloadingHost host(200);
  Session& session = host.session();
  host.run();
  // So many buffers are in flight that too few are free for the longest frame, although more than half are.
  constexpr std::uint32_t kBytes = 20000;
  for (std::uint32_t mark = 0; mark < 2; ++mark) REQUIRE(send(session, frame_of(kBytes, mark), kTcp, kBytes));
  const bool waits = GENERATE(true, false);
  if (waits) REQUIRE(session.claim(kSuper).empty());
  REQUIRE(session.credits().free > elements_for(wire::kMaxFrameBytes, 1536));
  session.flush();
  REQUIRE(session.prepare_sleep());
  static_cast<void>(host.rung());
  host.run_peer_alone();
  CHECK(host.rung() == waits);
  session.disarm();
}

TEST_CASE("an indication of elements that the peer does not hold ends the session", "[messaging][spanning]") {
  struct Row {
    const char* what;
    std::uint32_t element;
    std::uint32_t length;
  };
  const std::vector<Row> rows{{"no byte", 0, 0},
                              {"less than a frame", 0, 13},
                              {"longer than any frame", 0, wire::kMaxFrameBytes + 1},
                              {"all 32 bits", 0, 0xffffffff},
                              {"an element that is not there", 128, 60}};
  for (const Row& row : rows) {
    DYNAMIC_SECTION(row.what) {
      OffloadingHost host;
      host.indicate_element(row.element, row.length);
      REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
      CHECK(host.session().counters().faults == 1);
      CHECK(host.events.frames.empty());
    }
  }
  SECTION("a chain into elements that are not returned yet") {
    OffloadingHost host;
    for (std::uint32_t first = 0; first < 128; first += 43) host.indicate_element(first, wire::kMaxFrameBytes);
    REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
    CHECK_THAT(host.events.downs.front(), Catch::Contains("an element that is not the peer's"));
    CHECK(host.session().counters().rx_bad_length == 2);
    CHECK(host.session().counters().faults == 1);
  }
}

TEST_CASE("a frame whose header does not fit is dropped and counted", "[messaging][spanning]") {
  struct Row {
    const char* what;
    std::uint8_t flags;
    std::uint8_t kind;
    std::uint32_t bytes;  // of the indication
    std::uint64_t bad_length;
    std::uint64_t bad_offload;
  };
  const std::vector<Row> rows{
      {"nothing but a header", 0, 0, 14, 1, 0},
      {"one byte short of a frame", 0, 0, 23, 1, 0},
      {"the shortest", 0, 0, 24, 0, 0},
      {"the longest that is not segmented", 0, 0, 1532, 0, 0},
      {"longer", 0, 0, 1533, 1, 0},
      {"longer, with a partial checksum only", 1, 0, 1533, 1, 0},
      {"longer, to be segmented", 1, 1, 1533, 0, 0},
      {"an unknown flag", 4, 0, 60, 0, 1},
      {"all flags", 255, 0, 60, 0, 1},
      {"the kind of UDP fragments", 1, 3, 60, 0, 1},
      {"UDP segments that were not agreed on", 1, 5, 60, 0, 1},
      {"an unknown kind", 1, 127, 60, 0, 1},
  };
  for (const Row& row : rows) {
    DYNAMIC_SECTION(row.what) {
      OffloadingHost host;
      frame::VirtioNetHeader header{};
      header.flags = row.flags;
      header.kind = row.kind;
      header.segment_bytes = 1448;
      host.write_with(header, 0, row.bytes);
      const auto& counters = host.session().counters();
      REQUIRE(
          host.run_until([&] { return counters.rx_frames + counters.rx_bad_length + counters.rx_bad_offload == 1; }));
      CHECK(counters.rx_bad_length == row.bad_length);
      CHECK(counters.rx_bad_offload == row.bad_offload);
      CHECK(counters.rx_bytes == (counters.rx_frames == 1 ? row.bytes - 10 : 0));
      CHECK(host.events.downs.empty());
    }
  }
  SECTION("as long as any frame, and not to be segmented") {
    OffloadingHost host;
    frame::VirtioNetHeader header{};
    header.kind = 1;
    host.write_with(header, 0, 1536);
    host.run();
    host.indicate_element(1, wire::kMaxFrameBytes);
    REQUIRE(host.run_until([&] { return host.session().counters().rx_bad_length == 1; }));
    CHECK(host.session().counters().rx_frames == 1);
    CHECK(host.events.downs.empty());
  }
}

TEST_CASE("a pool that can't hold the longest frame ends a session with offloads", "[messaging][spanning]") {
  ScriptedHost host(scripted_unit());
  host.features = wire::kFeatureOffloads;
  REQUIRE(host.come_up_to_pools());
  SECTION("one element too few") {
    host.advertise(0, 42);
    REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
    CHECK_THAT(host.events.downs.front(), Catch::Contains("too small for the longest frame"));
  }
  SECTION("just enough") {
    host.advertise(0, 43);
    host.run();
    CHECK(host.events.downs.empty());
  }
}

TEST_CASE("an old peer's hello has no feature, and its frames have no header", "[messaging][spanning]") {
  ScriptedHost host(scripted_unit());
  REQUIRE(host.come_up());
  CHECK_FALSE(host.session().offloads());
  host.write(0, 60, wire::encode_immediate({host.unit_pool()->pool, 0, 60}));
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
  CHECK(host.events.frames.front() == std::vector<std::byte>(60, std::byte{0x42}));
}

}  // namespace splitnic::messaging::session_spanning_test
