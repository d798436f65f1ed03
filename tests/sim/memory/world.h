#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../paths/paths_world.h"
#include "engine.h"
#include "fabric/adapter/channel_adapter.h"
#include "fabric/memory/protection_table.h"
#include "image.h"
#include "in_flight.h"
#include "reference.h"

namespace splitnic::sim {

inline constexpr std::size_t kPaths = 2;
inline constexpr std::size_t kQueues = 3;
inline constexpr std::size_t kSites = 2 * kPaths;
inline constexpr std::size_t kTags = 20;  ///< that an adapter has room for

/// Everything that a seed decides before the first operation.
struct MemoryScenario {
  std::uint64_t seed = 0;
  std::array<PathOptions, kPaths> paths;
  std::array<std::uint32_t, kPaths> cell_payload{};
  std::array<bool, kSites> engine{};  ///< copies take their time
  std::size_t in_flight_max = 1;
  std::uint64_t crash_gap = 1;  ///< mean operations between two
};
MemoryScenario draw_memory_scenario(std::uint64_t seed);
std::string to_text(const MemoryScenario& scenario);

/// One end of a path: its adapter, and what the model knows of it.
struct Site {
  std::size_t arena_image = 0;
  std::size_t bridge_image = 0;
  std::unique_ptr<SlowEngine> engine;  ///< null: the processor copies
  std::unique_ptr<fabric::ChannelAdapter> adapter;
  fabric::CqNumber completions{};
  Reference reference;
  std::array<Queue, kQueues> queues;
  std::vector<fabric::ProtectionDomain> domains;  ///< the first two are the queues'; the second is strict
  std::array<fabric::Stag, 32> known{};           ///< tags that were handed out, most of them dead
  std::size_t noted = 0;
  std::map<std::uint32_t, fabric::AsyncEvent> fatal;  ///< by queue pair: what must be reported
  bool path_down = false;                             ///< was reported
  bool reborn = false;                                ///< its program died, and the adapter is another one
};

struct MemorySummary : SeedResult {
  std::uint64_t operations = 0;
  std::uint64_t crashes = 0;
  std::uint64_t comparisons = 0;  ///< of all memory with the model's
  std::uint64_t direct = 0;       ///< writes and reads through the window
  std::uint64_t pulled = 0;       ///< of these, reads whose bytes the reader's engine took
  std::uint64_t retransmissions = 0;
  std::uint64_t out_of_sequence = 0;  ///< cells that came early or late
  std::uint64_t duplicates = 0;
  std::uint64_t placed_early = 0;  ///< writes that ended a one-touch entry before an earlier packet came
  std::map<std::string, std::uint64_t> verdicts;
  std::vector<std::string> last_operations;
};

/// An owner of memory with two initiators, each on a path of its own, and random operations of all of them; beside it
/// the plain model. An operation is foretold by the model when it is posted. Requests are in flight together as long
/// as the order among them can't matter or is promised (in_flight.h); else the world comes to rest first, and at rest
/// every byte is as the model has it. Sites 0 and 2 are the owner's, with one memory; 1 and 3 are the initiators'.
class MemoryWorld final : PathsWorld {
 public:
  MemoryWorld(const MemoryScenario& scenario, bool trace);
  ~MemoryWorld();

  MemorySummary run(std::uint64_t operations);

 private:
  using Draft = std::unique_ptr<Request>;
  /// What bytes, by image and offset, may hold where it is not known which requests were carried out.
  struct Possible {
    using Place = std::pair<std::size_t, std::size_t>;
    std::map<Place, std::set<std::byte>> bytes;
    std::set<Place> anything;
    /// spoilt: its bytes may be anything.
    void add(const Request& request, bool spoilt);
  };

  // world.cpp: time, rest, what is true at rest
  void operation();
  void step();
  void settle();
  [[nodiscard]] bool at_rest();
  void judge();
  void judge(const Possible& possible, const char* when);
  void judge_either();
  void compare_memory();
  void revive_queues();
  void violate(const std::string& what);
  void remember(const std::string& what);
  void count(const std::string& what, const std::string& verdict, std::uint64_t number = 0);

  // ends.cpp: adapters, queue pairs, crashes
  void make_adapter(std::size_t site);
  void make_queues(std::size_t path);
  void connect(std::size_t path, std::size_t queue);
  void tally(const Site& site);
  void crash();
  void come_up(std::size_t path);
  [[nodiscard]] bool may_be_spoilt(const Request& request) const;
  void judge_crash(std::size_t path);
  void judge_tags(std::size_t site);
  void give_up_tags(std::size_t site);

  // outcomes.cpp: completions and events
  void take_all(std::size_t site);
  void take_completion(std::size_t site, const fabric::Completion& completion);
  void take_receive(std::size_t site, const fabric::Completion& completion);
  void take_event(std::size_t site, const fabric::AsyncEvent& event);

  // tables.cpp: verbs of the owner of a table
  void change_table();
  void stock(std::size_t path);
  void register_process_memory(std::size_t site);
  void register_bridge_memory(std::size_t site);
  void register_pages(std::size_t site);
  void reregister(std::size_t site);
  void deregister(std::size_t site);
  void allocate_region(std::size_t site);
  void allocate_window(std::size_t site);
  void deallocate_window(std::size_t site);
  void allocate_domain(std::size_t site);
  void deallocate_domain(std::size_t site);
  void registered(std::size_t site, const char* what, const fabric::ProtectionTable::Checked<fabric::Stag>& made,
                  const fabric::EntryOptions& options, fabric::ProtectionDomain domain, const Pieces& where,
                  std::string expected);
  [[nodiscard]] bool agree(const char* what, const std::string& says, const std::string& expected);
  void make_way(std::size_t site, std::uint32_t index);

  // draw.cpp: tags, rights and ranges of requests
  [[nodiscard]] fabric::Stag draw_tag(std::size_t site, bool (*is_kind)(fabric::EntryKind) = nullptr);
  [[nodiscard]] std::uint8_t draw_key(fabric::Stag tag);
  [[nodiscard]] fabric::Rights draw_rights(bool remote_only = false);
  [[nodiscard]] fabric::EntryOptions draw_options(std::size_t site);
  [[nodiscard]] fabric::ProtectionDomain draw_domain(std::size_t site);
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Range draw_range(const Reference::Entry* entry, std::uint64_t most);
  [[nodiscard]] Range draw_edge(const Reference::Entry& entry, std::uint64_t most);
  struct Segment {
    fabric::LocalSegment local{};
    Pieces pieces;  ///< empty: not good, or no bytes
    std::string verdict = "wrong_kind";
    [[nodiscard]] bool good() const { return verdict == "ok"; }
  };
  [[nodiscard]] Segment draw_segment(std::size_t site, const Queue& queue, std::uint64_t most, bool exactly,
                                     fabric::Right right, bool sink);
  [[nodiscard]] bool draw_same_target(Request& request);
  [[nodiscard]] bool draw_revoked(Request& request, std::uint64_t most);
  void draw_target(Request& request, fabric::Right right, std::uint64_t most);
  [[nodiscard]] Pieces draw_pages(std::size_t site, std::size_t count, fabric::PageList& list,
                                  std::vector<std::byte*>& pages);

  // requests.cpp: work requests
  void request();
  [[nodiscard]] Draft draw_request();
  void draw_write(Request& request);
  void draw_read(Request& request);
  void draw_sinks(Request& request, std::uint32_t first);
  void draw_atomic(Request& request);
  void draw_send(Request& request);
  [[nodiscard]] fabric::Stag draw_to_invalidate(std::size_t site, std::size_t queue, bool by_peer);
  void draw_sources(Request& request, std::uint32_t bytes);
  void draw_receive(Request& request, std::uint32_t bytes);
  void draw_bind(Request& request);
  [[nodiscard]] fabric::FastRegister draw_registration(Request& request);
  [[nodiscard]] bool may_overtake(const Request& request) const;
  [[nodiscard]] bool must_settle(const Request& request) const;
  [[nodiscard]] bool follows_failure(const Request& request) const;
  void post(Draft request);
  [[nodiscard]] bool fails_in_its_turn(Request& request);
  void post_receive(Request& request);
  void prepare(Request& request);
  void freshen(const Request& request);

  // effects.cpp: what a request does, by the model
  void foretell(Request& request) const;
  void foretell_uses(Request& request) const;
  void use_taken(Request& request) const;
  void end_taken(std::size_t path, std::size_t queue);
  void use(Request& request, std::size_t site, fabric::Stag tag, bool remote, bool changes) const;
  void use(Request& request, const Pieces& pieces, bool remote, bool writes) const;
  [[nodiscard]] std::string verdict_of(const Request& request) const;
  [[nodiscard]] fabric::Status post_status(const Request& request) const;
  [[nodiscard]] fabric::Access access_of(const Request& request) const;
  void apply(Request& request);
  void apply_failure(Request& request);
  void apply_write(Request& request);
  void apply_read(Request& request);
  void hold_pulls(std::size_t site);
  void apply_atomic(Request& request);
  void apply_send(Request& request);
  void apply_memory_request(Request& request);
  void change(Request& request, const Pieces& pieces, std::span<const std::byte> bytes);
  [[nodiscard]] std::vector<std::byte> content(const Pieces& pieces);
  [[nodiscard]] bool nobody_uses(const Piece& piece) const;

  [[nodiscard]] Site& from(const Request& request) { return sites_[request.from]; }
  [[nodiscard]] Site& to(const Request& request) { return sites_[request.from ^ 1U]; }
  [[nodiscard]] const Site& from(const Request& request) const { return sites_[request.from]; }
  [[nodiscard]] const Site& to(const Request& request) const { return sites_[request.from ^ 1U]; }
  void note(std::size_t site, fabric::Stag tag) {
    Site& at = sites_[site];
    at.known[at.noted++ % at.known.size()] = tag;
  }

  const MemoryScenario& scenario_;
  std::vector<Arena> arenas_;
  std::vector<Image> images_;
  std::array<Site, kSites> sites_;
  std::deque<Draft> in_flight_;
  std::uint64_t numbers_ = 0;
  bool idle_ = false;                           // nothing moved in the last step
  std::optional<std::size_t> crashed_path_;     // whose epoch is over
  std::optional<std::size_t> scribbled_image_;  // of a program that died, and whose memory holds anything
  bool was_cut_ = false;                        // the bridge of the crashed path, and was read as ones
  std::deque<std::string> last_operations_;
  MemorySummary summary_;
};

}  // namespace splitnic::sim
