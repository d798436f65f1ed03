#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../trace.h"
#include "common/random.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/link/loopback.h"

namespace splitnic::sim {

inline constexpr std::size_t kMostConnections = 4;

/// What the world does wrong, so that a check must find it: it changes a byte of memory that a write has stored, takes
/// a completion away, or swaps two messages that were sent.
enum class ExpressPlant : std::uint8_t { none, byte, swallow, swap };

/// A queue pair at each end. By end: 0 or 1.
struct ExpressConnection {
  std::size_t depth = 1;
  std::size_t reads = 1;
  fabric::VirtualLane lane = fabric::VirtualLane::data;
  bool shared_receives = false;  ///< both ends take receives out of one queue, and are never reset
  std::array<std::uint32_t, 2> psn{};
  std::array<bool, 2> target_in_bridge{};  ///< the peer's window reaches what it writes and reads there
  std::array<bool, 2> sinks_in_bridge{};   ///< likewise where answers to own reads go
};

struct ExpressScenario {
  std::uint64_t seed = 0;
  std::array<std::size_t, fabric::kLanes> slot_bytes{};
  std::array<std::size_t, fabric::kLanes> payload_bytes{};
  std::uint32_t cell_payload = 64;
  bool polls_links = false;  ///< ChannelAdapter::take_turn()
  bool verbs_rules = false;
  std::vector<ExpressConnection> connections;
  ExpressPlant plant = ExpressPlant::none;
};
ExpressScenario draw_express_scenario(std::uint64_t seed);
std::string to_text(const ExpressScenario& scenario);

struct ExpressSummary : SeedResult {
  std::uint64_t arrived = 0;  ///< messages
  std::uint64_t resets = 0;
  fabric::AdapterCounters counters{};
};

/// Two adapters on a loop-back link, in one thread: what one stores, the other may see at once. So messages go the
/// short way (Express) wherever they may: writes into granted memory are stored during the post, slots are put at once,
/// answers to reads are stored. The general way takes what does not fit. A post, a poll or a look at the completions
/// follows the other in an order that the seed draws. These must hold:
///
/// - requests of a queue pair end in their order, each once, and all succeed;
/// - messages arrive once, in order and whole, as do the immediates of writes;
/// - each word that a read returns was there while the read was under way, and is no older than any write that was
///   posted before it; each addition returns how many came before it;
/// - at rest nothing is outstanding, and each word of a target is as the last write to it has left it;
/// - after a reset of both ends, nothing of the earlier stream arrives.
class ExpressWorld {
 public:
  ExpressWorld(const ExpressScenario& scenario, bool trace);
  ~ExpressWorld();

  ExpressSummary run(std::uint64_t operations);

 private:
  struct Area;
  struct Posted;
  struct Sent;
  struct Queue;
  struct End;
  struct Draft;

  // world.cpp: set-up, time, resets, what is true at rest
  void come_up();
  void make_end(std::size_t number);
  void make_queue(std::size_t end, std::size_t connection);
  Area make_area(std::size_t end, bool in_bridge, std::size_t offset, std::size_t bytes, fabric::Rights rights);
  void connect(std::size_t end, std::size_t connection);
  void operation();
  void poll(std::size_t end);
  void doze(std::size_t end);
  void reset(std::size_t connection);
  [[nodiscard]] bool at_rest() const;
  void settle();
  void judge();

  // traffic.cpp: requests, receives, completions
  void post_sends(std::size_t end);
  Draft draw_request(Queue& queue, std::vector<Draft>& list);
  void draw_send(Queue& queue, Draft& draft, std::uint32_t number);
  void draw_write(Queue& queue, Draft& draft, std::uint32_t number);
  void draw_read(Queue& queue, Draft& draft, const std::vector<Draft>& before);
  void cut(Draft& draft);
  void posted(Queue& queue, Draft& draft);
  void post_receives(std::size_t end);
  bool post_shared_receive(End& at);
  bool post_receive(End& at, Queue& queue);
  void take_completions(std::size_t end);
  void ended(End& at, const fabric::Completion& done);
  void check_read(Queue& queue, const Posted& request);
  void arrived(End& at, const fabric::Completion& done);
  void check_message(const Sent& sent, const fabric::Completion& done, const std::byte* place);

  [[nodiscard]] static Queue* find(End& at, fabric::QpNumber number);
  [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return draws_.below(limit); }
  [[nodiscard]] bool one_in(std::uint64_t times) { return draws_.below(times) == 0; }
  void violate(const std::string& what) { verdicts_.violate(now_, what); }
  void expect(fabric::Status status, const char* what);

  const ExpressScenario& scenario_;
  Trace trace_;
  Verdicts verdicts_;
  SeededRandom draws_;
  std::array<SeededRandom, 2> links_;
  Time now_ = kStart;
  std::unique_ptr<fabric::Loopback> loopback_;
  std::array<std::unique_ptr<End>, 2> ends_;
  bool planted_ = false;
  ExpressSummary summary_;
};

}  // namespace splitnic::sim
