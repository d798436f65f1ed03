// A session in the unit's role.
#include <algorithm>
#include <vector>

#include "common/check.h"
#include "messaging/session.h"
#include "tests/hostile_sessions/world.h"
#include "tests/unit/loads_once.h"

namespace splitnic::hostile {

namespace {

namespace wire = messaging::wire;

constexpr std::uint32_t kMaxMtu = 1500;
constexpr std::uint32_t kMaxFrameBytes = kMaxMtu + messaging::kFrameOverheadBytes;

/// Checks the order of what a session tells its driver.
class CheckedEvents final : public messaging::SessionEvents {
 public:
  std::uint64_t frames = 0;
  std::uint64_t hellos = 0;
  bool up = false;
  bool negotiated = false;

 private:
  tl::expected<messaging::HelloGrant, messaging::Refusal> on_hello(const wire::HelloRequest&) override {
    SPLITNIC_CHECK(!negotiated && !up);
    negotiated = true;
    ++hellos;
    return messaging::HelloGrant{.mac = MacAddress{{2, 0, 0, 0, 0, 1}}, .max_mtu = kMaxMtu, .link_up = true};
  }
  void on_up(const wire::HelloReply* reply) override {
    SPLITNIC_CHECK(negotiated && !up && reply == nullptr);
    up = true;
  }
  void on_down(std::string_view reason) override {
    SPLITNIC_CHECK(!reason.empty());
    up = negotiated = false;
  }
  void on_frame(const messaging::ReceivedFrame& frame) override {
    SPLITNIC_CHECK(negotiated);
    SPLITNIC_CHECK_OP(frame.size(), >=, wire::kMinFrameBytes);
    const bool segmented = frame.offload.kind != frame::SegmentKind::none;
    SPLITNIC_CHECK_OP(frame.size(), <=, segmented ? wire::kMaxSuperFrameBytes : kMaxFrameBytes);
    copy_.resize(frame.size());
    frame.copy_out(copy_);
    ++frames;
  }
  messaging::Answer on_request(const wire::RequestBody& request) override {
    SPLITNIC_CHECK(negotiated);
    if (std::holds_alternative<wire::SetMtu>(request)) return wire::MtuReply{kMaxMtu};
    if (std::holds_alternative<wire::StatisticsReport>(request)) return wire::Statistics{};
    return wire::Acknowledged{};
  }
  void on_reply(wire::CfgRequest, const messaging::Answer&) override { SPLITNIC_CHECK(negotiated); }

  std::vector<std::byte> copy_;
};

class SessionWorld final : public World {
 public:
  explicit SessionWorld(std::uint8_t kind)
      : World(kind),
        pair_(small_bridge(), random_),
        session_(session_options(), pair_.end(1), random_, events_),
        end_(end_options(), pair_.end(0), random_) {}

  test::ValidEnd& end() override { return end_; }
  fabric::SimBridgePair& pair() override { return pair_; }
  bool victim_up() override { return session_.up(); }
  void step(Duration time) override {
    pair_.advance(now_);
    session_.poll(now_);
    session_.flush();
    pair_.advance(now_);
    end_.poll(now_);
    now_ += time;
  }
  void let_victim_act(Input& input) override {
    switch (input.byte() % 8) {
      case 0:
        session_.request(wire::Heartbeat{input.byte()});
        break;
      case 1:
        session_.request(wire::LinkState{.up = true});
        break;
      case 2:
        session_.reset("the test wants it");
        break;
      case 3:
        static_cast<void>(session_.prepare_sleep());
        session_.disarm();
        break;
      default:
        push_frames(input);
    }
  }
  void check() override {
    SPLITNIC_CHECK(events_.up == session_.up());
    const auto& counters = session_.counters();
    SPLITNIC_CHECK_OP(counters.rx_frames, ==, events_.frames);
    SPLITNIC_CHECK_OP(counters.ups, <=, events_.hellos);
    const messaging::Credits credits = session_.credits();
    SPLITNIC_CHECK_OP(credits.free, <=, credits.elements);
  }
  void check_recovery() override {
    const std::uint64_t before = events_.frames;
    const std::vector<std::byte> frame(100);
    for (unsigned tries = 0; tries < 200 && events_.frames == before; ++tries) {
      if (tries == 0) SPLITNIC_CHECK(end_.send_frame(frame));
      step(std::chrono::microseconds(100));
    }
    SPLITNIC_CHECK_OP(events_.frames, ==, before + 1);
  }
  [[nodiscard]] const messaging::Session& session() const { return session_; }

 private:
  [[nodiscard]] messaging::SessionOptions session_options() const {
    messaging::SessionOptions options;
    options.role = wire::Role::io_unit;
    options.name = "unit";
    options.pool_elements = 16;
    set_terms(options);
    return options;
  }
  void push_frames(Input& input) {
    for (unsigned count = input.byte() % 32; count > 0; --count) {
      const auto memory = session_.claim(session_.longest_frame_bytes());
      if (memory.size() < wire::kMinFrameBytes) return;
      const auto most = std::min<std::size_t>(memory.size(), session_.max_frame_bytes());
      const std::size_t bytes = std::clamp<std::size_t>(input.half(), wire::kMinFrameBytes, most);
      memory.write(0, std::vector(bytes, std::byte{7}));
      session_.commit(static_cast<std::uint32_t>(bytes));
    }
    session_.flush();
  }

  SeededRandom random_{1};
  fabric::SimBridgePair pair_;
  splitnic::test::LoadsOnce loads_{pair_.end(1).local_memory()};
  CheckedEvents events_;
  messaging::Session session_;
  test::ValidEnd end_;
  Time now_{std::chrono::hours(1)};
};

}  // namespace

Tally attack_session(Input& input, unsigned flood) {
  SessionWorld world(input.byte());
  Tally tally = attack(world, input, flood);
  tally.received = world.session().adapter_counters().cells_received;
  tally.ups = world.session().counters().ups;
  tally.faults = world.session().counters().faults;
  return tally;
}

}  // namespace splitnic::hostile
