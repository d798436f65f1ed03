#include "tests/hostile/owner.h"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/hostile/honest_host.h"

namespace splitnic::fabric::hostile {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Rights kLocalRights = Right::local_read | Right::local_write;
constexpr Rights kEverything = kLocalRights | Right::remote_read | Right::remote_write | Right::remote_atomic;
constexpr std::size_t kReceives = 8;
constexpr std::uint64_t kAskId = 1000;
/// The number of operations of the honest initiator before and after an attack.
constexpr std::uint64_t kOperations = 300;

EntryOptions with(Rights rights) {
  EntryOptions options;
  options.rights = rights;
  return options;
}

/// Resources of the process that an attack could leak.
struct Resources {
  std::size_t descriptors = 0;
  std::size_t shared_mappings = 0;
  friend bool operator==(const Resources&, const Resources&) = default;

  static Resources now() {
    namespace fs = std::filesystem;
    Resources found;
    found.descriptors =
        static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      found.shared_mappings += line.find("memfd:") != std::string::npos ? 1 : 0;
    }
    return found;
  }
};

/// The seed, printed once. SPLITNIC_SEED replays a run.
std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    const char* given = std::getenv("SPLITNIC_SEED");
    const std::uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : SystemRandom().next();
    std::cout << "hostile initiator: SPLITNIC_SEED=" << value << "\n";
    return value;
  }();
  return chosen;
}

}  // namespace

Owner::Owner(Attack attack, std::uint64_t seed) : attack_(std::move(attack)), random_(seed) {
  std::string directory = "/tmp/splitnic-hostile-XXXXXX";
  REQUIRE(mkdtemp(directory.data()) != nullptr);
  directory_ = directory;
  ShmListenOptions options;
  options.path = directory_ + "/socket";
  auto listener = ShmListener::listen(options);
  REQUIRE(listener.has_value());
  listener_ = std::move(*listener);
  const std::string path = options.path;
  honest_process_ = std::make_unique<Child>([&] { return run_honest_host(path, *honest_board_, seed + 1); });
  hostile_process_ = std::make_unique<Child>([&] {
    HostileHost host(path, *hostile_board_, seed + 2);
    host.set_up();
    attack_.run(host);
    host.look_around();
    hostile_board_->stage.store(Stage::attacked);
    for (;;) ::pause();  // keeps its memory mapped until the owner ends it
    return 0;
  });
}

Owner::~Owner() { stop_listening(); }

/// Called as soon as all initiators have connected, so that a bug that aborts leaves no socket behind.
void Owner::stop_listening() {
  if (listener_ == nullptr) return;
  listener_.reset();
  rmdir(directory_.c_str());
}

template <class Condition>
void Owner::poll_until(std::string_view what, Condition condition, Duration limit) {
  const Time give_up = monotonic_now() + limit;
  while (!condition()) {
    if (monotonic_now() >= give_up) FAIL("waited in vain for " << what << "; " << arena_.damage());
    if (const auto status = honest_process_->status(); status && *status != 0) {
      FAIL("the honest initiator ended with " << *status);
    }
    poll();
  }
}

std::size_t Owner::poll() {
  const Time now = monotonic_now();
  accept(now);
  std::size_t moved = 0;
  for (Session* session : {&honest_, &hostile_}) {
    if (session->link == nullptr) continue;
    moved += session->link->poll(now) + session->adapter->poll(now);
  }
  serve(honest_, Arena::kHonestReceives);
  serve(hostile_, Arena::kReceives);
  ask_again();
  if (moved == 0) wait_for_doorbells(now);
  return moved;
}

void Owner::wait_for_doorbells(Time now) {
  std::vector<pollfd> readable;
  // The boards have no descriptor, so poll them.
  Time until = now + milliseconds(listener_ != nullptr ? 1 : 50);
  bool may_sleep = true;
  for (Session* session : {&honest_, &hostile_}) {
    if (session->link == nullptr) continue;
    may_sleep = may_sleep && session->link->prepare_sleep();
    until = std::min(
        {until, session->adapter->next_deadline(), session->link->next_deadline(now, session->adapter->outstanding())});
    const bool there = session->bridge->link() == LinkState::up;
    if (there) readable.push_back({session->bridge->doorbell_descriptor(), POLLIN, 0});
  }
  if (may_sleep) {
    const auto wait = std::chrono::ceil<milliseconds>(std::max(until - monotonic_now(), Duration::zero()));
    static_cast<void>(::poll(readable.data(), readable.size(), static_cast<int>(wait.count())));
  }
  for (Session* session : {&honest_, &hostile_}) {
    if (session->link != nullptr) session->link->disarm();
  }
}

void Owner::accept(Time now) {
  if (listener_ == nullptr) return;
  listener_->poll(now);
  while (auto accepted = listener_->take()) {
    const bool is_honest = accepted->pid == honest_process_->pid();
    REQUIRE((is_honest || accepted->pid == hostile_process_->pid()));
    Session& session = is_honest ? honest_ : hostile_;
    session.bridge = std::move(accepted->bridge);
    LinkOptions options;
    options.port_address = kOwnerPort;
    session.link = std::make_unique<FabricLink>(*session.bridge, options, random_);
    session.link->restart();
    AdapterOptions adapter;
    adapter.cell_payload_bytes = 256;  // so that a message of some hundred bytes has several cells
    adapter.ack_timeout = seconds(2);
    session.adapter = std::make_unique<ChannelAdapter>(*session.link, adapter, random_);
  }
}

// ---- introducing the initiators

Grant Owner::grant(Session& session, const MemoryRange& range, const EntryOptions& options, ProtectionDomain domain) {
  const RegionMemory memory = RegionMemory::of_process(arena_.at(range));
  const Stag tag = session.adapter->table().register_region(domain, memory, options).value();
  session.tags.push_back(tag);
  return {tag, session.adapter->region_address(tag), range.bytes};
}

Grant Owner::grant_direct(Session& session, std::size_t bytes) {
  session.direct_offset = session.link->buffers().offset;
  const MemoryRange range{session.direct_offset, bytes};
  const auto tag = session.adapter->register_bridge_memory(session.domain, range, kEverything, true);
  REQUIRE(tag.has_value());
  session.tags.push_back(*tag);
  session.bridge_tags.push_back(*tag);
  return {*tag, session.adapter->region_address(*tag), bytes};
}

Grant Owner::grant_window(Session& session) {
  const Grant& region = session.introduction.windowed;
  std::array<Stag, 1> window{};
  REQUIRE(session.adapter->table().allocate_windows(session.domain, EntryKind::window_type_1, window));
  Bind bind;
  bind.window = window[0];
  bind.region = region.tag;
  bind.address = region.address + (Arena::kWindow.offset - Arena::kWindowed.offset);
  bind.length = Arena::kWindow.bytes;
  bind.rights = Right::remote_read | Right::remote_write;
  const Consumer consumer{session.domain, session.introduction.queue_pair};
  const Stag tag = session.adapter->table().bind(bind, consumer).value();
  session.tags.push_back(tag);
  return {tag, bind.address, bind.length};
}

/// Makes what both initiators have: a domain and a connected queue pair.
void Owner::introduce(Session& session, const Board& board) {
  session.incarnation = session.link->incarnation();
  session.domain = session.adapter->allocate_domain();
  session.other_domain = session.adapter->allocate_domain();
  session.completions = session.adapter->create_completion_queue(256);
  QueuePairAttributes options;
  options.domain = session.domain;
  options.send_completions = options.receive_completions = session.completions;
  options.receive_depth = kReceives;
  session.introduction.queue_pair = session.adapter->create_queue_pair(options).value();
  session.introduction.idle_queue_pair = session.adapter->create_queue_pair(options).value();
  REQUIRE(session.adapter->connect(session.introduction.queue_pair, {board.number, kPsnFromOwner, kPsnToOwner}) ==
          Status::ok);
}

void Owner::introduce_honest() {
  introduce(honest_, *honest_board_);
  honest_.memory = grant(honest_, Arena::kHonestReceives, with(kLocalRights), honest_.domain).tag;
  honest_.introduction.open = grant(honest_, Arena::kHonest, with(kEverything), honest_.domain);
  honest_.introduction.direct = grant_direct(honest_, kHonestDirectBytes);
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) post_receive(honest_, slot, Arena::kHonestReceives);
  honest_board_->introduction = honest_.introduction;
  honest_board_->stage.store(Stage::introduced);
}

void Owner::introduce_hostile() {
  introduce(hostile_, *hostile_board_);
  Introduction& told = hostile_.introduction;
  const ProtectionDomain domain = hostile_.domain;
  // The ranges for the owner's own use are adjacent, from the receives to the sink.
  const MemoryRange own{Arena::kReceives.offset, Arena::kSink.offset + Arena::kSink.bytes - Arena::kReceives.offset};
  hostile_.memory = grant(hostile_, own, with(kLocalRights), domain).tag;
  told.neighbour = honest_.introduction.open;
  told.open = grant(hostile_, Arena::kOpen, with(kEverything), domain);
  told.readable = grant(hostile_, Arena::kReadable, with(kLocalRights | Right::remote_read), domain);
  told.writable = grant(hostile_, Arena::kWritable, with(kLocalRights | Right::remote_write), domain);
  told.local = grant(hostile_, Arena::kLocal, with(kLocalRights | Right::window_binding), domain);
  told.foreign = grant(hostile_, Arena::kForeign, with(kEverything), hostile_.other_domain);
  EntryOptions bound = with(kEverything);
  bound.queue_pair = told.idle_queue_pair;
  told.others = grant(hostile_, Arena::kOthers, bound, domain);
  told.windowed = grant(hostile_, Arena::kWindowed, with(kLocalRights | Right::window_binding), domain);
  told.window = grant_window(hostile_);
  told.direct = grant_direct(hostile_, kHostileDirectBytes);
  told.stale = grant(hostile_, Arena::kStale, with(kEverything), domain);
  REQUIRE(hostile_.adapter->table().deregister(told.stale.tag));
  hostile_.tags.pop_back();
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) post_receive(hostile_, slot, Arena::kReceives);
  hostile_board_->introduction = told;
}

void Owner::post_receive(Session& session, std::uint64_t slot, const MemoryRange& receives) {
  const std::size_t bytes = receives.bytes / kReceives;
  const auto lot = arena_.at(receives).subspan(slot * bytes, bytes);
  const LocalSegment segment{lot.data(), static_cast<std::uint32_t>(lot.size()), session.memory};
  // The post fails if the queue pair has failed in the meantime.
  static_cast<void>(session.adapter->post_receive(session.introduction.queue_pair, ReceiveRequest{slot, segment, {}}));
}

void Owner::serve(Session& session, const MemoryRange& receives) {
  if (session.adapter == nullptr) return;
  std::array<AsyncEvent, 16> events;
  static_cast<void>(session.adapter->poll_events(events));
  std::array<Completion, 16> completions;
  const std::size_t count = session.adapter->poll_completions(session.completions, completions);
  for (const Completion& completion : std::span(completions).first(count)) {
    if (!completion.receive) {
      answered_ = completion.status;
      ++asked_;
      continue;
    }
    if (completion.status != CompletionStatus::success) continue;
    if (&session == &honest_) {
      const auto greeting = arena_.at(receives).subspan(completion.id * receives.bytes / kReceives, completion.bytes);
      REQUIRE(greeting.size() == kGreetingBytes);
      for (std::size_t i = 0; i < greeting.size(); ++i) REQUIRE(greeting[i] == greeting_byte(greetings_, i));
      ++greetings_;
    }
    post_receive(session, completion.id, receives);
  }
}

// ---- requests of the owner to the hostile initiator

void Owner::ask() {
  if (attack_.asks == Asks::drain) {
    const Grant direct = hostile_.introduction.direct;
    quarantined_ = {hostile_.direct_offset, static_cast<std::size_t>(direct.bytes)};
    REQUIRE(hostile_.adapter->deregister(direct.tag) == Status::ok);
    std::erase(hostile_.tags, direct.tag);
    std::erase(hostile_.bridge_tags, direct.tag);
    return;
  }
  if (attack_.asks != Asks::read && attack_.asks != Asks::atomic) return;
  const bool read = attack_.asks == Asks::read;
  const auto sink = arena_.at(Arena::kSink);
  WorkRequest request;
  request.id = kAskId;
  request.operation = read ? Operation::rdma_read : Operation::fetch_add;
  request.remote = {kHostileMemory.address, kHostileMemory.tag};
  request.segments[0] = {sink.data(), read ? kAskedBytes : std::uint32_t{8}, hostile_.memory};
  request.segment_count = 1;
  REQUIRE(hostile_.adapter->post_send(hostile_.introduction.queue_pair, request) == Status::ok);
}

/// Stores directly wherever the peer's grants allow it now, as a driver does.
void Owner::ask_again() {
  if (attack_.asks != Asks::direct_writes || hostile_board_->stage.load() != Stage::attacking) return;
  const auto at = hostile_.adapter->claim_direct(hostile_.introduction.queue_pair,
                                                 {kHostileMemory.address, kHostileMemory.tag}, kAskedBytes);
  if (!at) return;
  static constexpr std::array<std::byte, kAskedBytes> kBytes{};
  hostile_.bridge->peer_window().write(*at, kBytes);
  ++asked_;
}

// ---- the steps of a test, and its checks

void Owner::connect() {
  poll_until("the links", [this] {
    const bool up = honest_.link != nullptr && honest_.link->up() && hostile_.link != nullptr && hostile_.link->up();
    return up && honest_board_->stage.load() == Stage::linked && hostile_board_->stage.load() == Stage::linked;
  });
  stop_listening();
  introduce_honest();
  introduce_hostile();
  honest_table_ = question(honest_);
  poll_until("the honest initiator", [this] { return honest_board_->operations.load() > kOperations; });
}

bool Owner::session_over() { return !hostile_.link->up() || hostile_.link->incarnation() != hostile_.incarnation; }

bool Owner::ended_as_it_must() {
  const auto state = hostile_.adapter->state(hostile_.introduction.queue_pair);
  switch (attack_.ending) {
    case Ending::harmless:
    case Ending::either_way:
      return true;
    case Ending::queue_pair:
      return !session_over() && state == QueuePairState::error;
    case Ending::link:
      return session_over() && state == QueuePairState::error;
  }
  return false;
}

/// The table's answers to a queue pair of the domain about the domain's tags: for each right, around the ends of their
/// ranges.
std::vector<std::string> Owner::question(const Session& session, bool with_bridge) const {
  constexpr std::array kRights{Right::remote_read, Right::remote_write, Right::remote_atomic};
  const ProtectionTable& table = session.adapter->table();
  std::vector<std::string> answers;
  const auto in_bridge = [&](Stag tag) { return std::ranges::count(session.bridge_tags, tag) != 0; };
  const auto left_out =
      std::ranges::count_if(session.bridge_tags, [&](Stag tag) { return table.find(tag) != nullptr; });
  const std::size_t tags = table.tags_in(session.domain) - (with_bridge ? 0 : static_cast<std::size_t>(left_out));
  answers.push_back(fmt::format("{} and {} tags", tags, table.tags_in(session.other_domain)));
  for (const Stag tag : session.tags) {
    if (!with_bridge && in_bridge(tag)) continue;
    const ProtectionEntry* entry = table.find(tag);
    if (entry == nullptr || !entry->valid) {
      answers.push_back(fmt::format("{:#x} is gone", tag.value));
      continue;
    }
    answers.push_back(fmt::format("{:#x}: base {:#x} length {:#x} rights {:#x} bound {} of {}", tag.value, entry->base,
                                  entry->length, entry->rights.bits, entry->bound, entry->domain.value));
    for (const Right right : kRights) {
      for (const std::uint64_t at : {entry->base - 8, entry->base, entry->base + entry->length - 8,
                                     entry->base + entry->length, ~std::uint64_t{0}}) {
        const Access access{tag, session.domain, 8, right, session.introduction.queue_pair, 0};
        const auto placement = table.check_remote(access, at);
        answers.emplace_back(placement ? fmt::format("at {:#x}", placement->offset) : to_string(placement.error()));
      }
    }
  }
  return answers;
}

void Owner::judge_tables() {
  CHECK(question(honest_) == honest_table_);
  if (session_over()) {
    // The end of an epoch ends the regions of the bridge's memory, and nothing else.
    for (const Stag tag : hostile_.bridge_tags) CHECK(hostile_.adapter->table().find(tag) == nullptr);
    CHECK(question(hostile_, false) == hostile_process_table_);
  } else {
    CHECK(question(hostile_) == hostile_table_);
  }
}

void Owner::endure() {
  ask();
  hostile_table_ = question(hostile_);
  hostile_process_table_ = question(hostile_, false);
  hostile_board_->stage.store(Stage::attacking);
  poll_until("the attack", [this] { return hostile_board_->stage.load() == Stage::attacked; });
  poll_until("the end of the session", [this] { return ended_as_it_must(); });
  const std::uint64_t after = honest_board_->operations.load() + kOperations;
  poll_until("the honest initiator, afterwards", [&] { return honest_board_->operations.load() > after; });
  if (attack_.ending == Ending::harmless) {
    CAPTURE(hostile_.link->fault());
    CHECK_FALSE(session_over());
    CHECK(hostile_.adapter->state(hostile_.introduction.queue_pair) == QueuePairState::ready_to_send);
  }
  if (attack_.asks == Asks::drain) {
    CHECK(hostile_.adapter->in_quarantine(quarantined_));
    CHECK_FALSE(hostile_.adapter->register_bridge_memory(hostile_.domain, quarantined_, kEverything, true));
  }
  judge_tables();
}

void Owner::judge_memory() {
  honest_board_->stage.store(Stage::finish);
  poll_until("the honest initiator's end", [this] { return honest_process_->status().has_value(); });
  CHECK(*honest_process_->status() == 0);
  CHECK(honest_.link->incarnation() == honest_.incarnation);
  hostile_process_->end();
  CHECK(arena_.damage() == "");
  CHECK(std::ranges::equal(arena_.at(Arena::kHonest), honest_board_->model));
  std::vector<std::byte> direct(kHonestDirectBytes);
  honest_.bridge->local_memory().copy_out(honest_.direct_offset, direct);
  CHECK(std::ranges::equal(direct, honest_board_->direct_model));
  CHECK_FALSE(hostile_board_->secret_seen);
  if (!session_over()) CHECK_FALSE(hostile_board_->own_memory_spoilt);
}

Outcome Owner::outcome() const {
  Outcome outcome;
  outcome.counters = hostile_.adapter->counters();
  outcome.fault = hostile_.link->fault();
  outcome.told = hostile_board_->told;
  outcome.times_told = hostile_board_->times_told;
  outcome.count = hostile_board_->count;
  outcome.asked = asked_;
  outcome.answered = answered_;
  return outcome;
}

Outcome endure(Ending ending, Asks asks, std::function<void(HostileHost&)> run) {
  static std::uint64_t next_seed = seed();
  const Resources before = Resources::now();
  Outcome outcome;
  {
    INFO("seed " << next_seed);
    Owner owner({ending, asks, std::move(run)}, next_seed);
    next_seed += 3;
    owner.connect();
    owner.endure();
    owner.judge_memory();
    outcome = owner.outcome();
  }
  const bool leaked = Resources::now() != before;
  CHECK_FALSE(leaked);
  return outcome;
}

}  // namespace splitnic::fabric::hostile
