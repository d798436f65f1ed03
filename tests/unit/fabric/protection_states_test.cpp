// The protection table as a peer meets it: through a queue pair in each of its states.
#include <string>

#include "adapter_fixtures.h"

namespace splitnic::fabric::test::protection_states_test {
namespace {

constexpr std::array kStates{
    QueuePairState::reset,         QueuePairState::init,       QueuePairState::ready_to_receive,
    QueuePairState::ready_to_send, QueuePairState::sq_drained, QueuePairState::sq_error,
    QueuePairState::error};
constexpr std::array kKinds{EntryKind::region, EntryKind::window_type_1, EntryKind::window_type_2};
constexpr std::array kOperations{Opcode::write_only, Opcode::read_request, Opcode::compare_swap, Opcode::fetch_add};
constexpr std::array kRemoteRights{Rights{}, Rights{} | Right::remote_read, Rights{} | Right::remote_write,
                                   Rights{} | Right::remote_atomic};
constexpr std::uint64_t kBefore = 0x1111'1111'1111'1111;
constexpr std::uint64_t kWritten = 0x2222'2222'2222'2222;

Right right_for(Opcode operation) {
  if (operation == Opcode::write_only) return Right::remote_write;
  return operation == Opcode::read_request ? Right::remote_read : Right::remote_atomic;
}

/// An owner whose queue pair has been led into the state, and one entry.
struct Owner : ScriptedPeer {
  explicit Owner(QueuePairState state) { lead_to(state); }
  void lead_to(QueuePairState state) {
    before = host.adapter.counters();
    words.fill(kBefore);
    step(QueuePairEvent::reset);
    if (state >= QueuePairState::init) step(QueuePairEvent::initialize);
    if (state >= QueuePairState::ready_to_receive) step(QueuePairEvent::ready_to_receive);
    if (state >= QueuePairState::ready_to_send) step(QueuePairEvent::ready_to_send);
    if (state == QueuePairState::sq_drained) step(QueuePairEvent::drain_sends);
    if (state == QueuePairState::sq_error) step(QueuePairEvent::fail_sends);
    if (state == QueuePairState::error) step(QueuePairEvent::fail);
    REQUIRE(host.adapter.state(host.number) == state);
  }
  void step(QueuePairEvent event) {
    REQUIRE(host.adapter.modify(host.number, event, {kNumber, kOwnPsn, kPsn}) == Status::ok);
  }

  RegionMemory memory() { return RegionMemory::of_process(std::as_writable_bytes(std::span(words))); }
  RemoteAddress entry(EntryKind kind, Rights rights) {
    ProtectionTable& table = host.adapter.table();
    EntryOptions options;
    options.rights = kLocalRights | Right::window_binding;
    if (kind == EntryKind::region) options.rights = Rights{static_cast<std::uint16_t>(kLocalRights.bits | rights.bits)};
    const Stag region = table.register_region(host.domain, memory(), options).value();
    if (kind == EntryKind::region) return {host.adapter.region_address(region), region};
    std::array<Stag, 1> window{};
    REQUIRE(table.allocate_windows(host.domain, kind, window));
    Bind bind;
    bind.window = window[0];
    bind.region = region;
    bind.address = host.adapter.region_address(region);
    bind.length = sizeof words;
    bind.rights = rights;
    return {bind.address, table.bind(bind, {host.domain, host.number}).value()};
  }
  void request(Opcode operation, RemoteAddress at) {
    Cell made = cell(operation, kPsn);
    made.tag = at.tag;
    made.address = at.address;
    made.message_bytes = sizeof kWritten;
    made.message_sequence = 1;
    made.compare = operation == Opcode::compare_swap ? kBefore : 0;
    made.swap_or_add = operation == Opcode::compare_swap ? kWritten : kWritten - kBefore;
    put(made, operation == Opcode::write_only ? std::as_bytes(std::span(&kWritten, 1)) : std::span<const std::byte>{});
  }

  alignas(64) std::array<std::uint64_t, 8> words{};
  AdapterCounters before{};  ///< when the state was entered
};

/// What became of a request: told by its answer, the counters and the memory together, or else "?".
std::string outcome(Owner& owner, Opcode operation) {
  const std::vector<Cell> answers = owner.poll_and_take();
  const AdapterCounters& counters = owner.host.adapter.counters();
  const std::uint64_t dropped = counters.dropped_unknown_queue_pair - owner.before.dropped_unknown_queue_pair;
  const std::uint64_t refused = counters.access_refused - owner.before.access_refused;
  std::array<std::uint64_t, 8> untouched;
  untouched.fill(kBefore);
  std::array<std::uint64_t, 8> changed = untouched;
  if (operation != Opcode::read_request) changed[0] = kWritten;
  if (answers.empty() && dropped == 1 && owner.words == untouched) return "dropped";
  if (answers.size() != 1) return "?";
  const Cell& answer = answers[0];
  if (answer.opcode == Opcode::terminate && refused == 1 && owner.words == untouched) {
    return answer.reason.code == 2 ? "no right" : answer.reason.code == 0 ? "not such an entry" : "?";
  }
  const Opcode good = operation == Opcode::write_only     ? Opcode::acknowledge
                      : operation == Opcode::read_request ? Opcode::read_response_only
                                                          : Opcode::atomic_acknowledge;
  return answer.opcode == good && refused == 0 && owner.words == changed ? "done" : "?";
}

}  // namespace

TEST_CASE("every right, operation, kind, rule and queue-pair state together: done, refused by name, or dropped",
          "[fabric][memory][state]") {
  for (const QueuePairState state : kStates) {
    for (const DomainRules rules : {DomainRules::verbs, DomainRules::strict}) {
      for (const EntryKind kind : kKinds) {
        Owner owner(state);
        owner.host.adapter.table().set_rules(owner.host.domain, rules);
        for (const Rights rights : kRemoteRights) {
          for (const Opcode operation : kOperations) {
            INFO(to_string(state) << ", rules " << int(rules) << ", kind " << int(kind) << ", rights " << rights.bits
                                  << ", " << to_string(operation));
            owner.lead_to(state);
            owner.request(operation, owner.entry(kind, rights));
            std::string expected = "done";
            if (!rights.has(right_for(operation))) expected = "no right";
            if (rules == DomainRules::strict && kind == EntryKind::region) expected = "not such an entry";
            if (!queue_pair_rules(state).connected) expected = "dropped";
            const std::string got = outcome(owner, operation);
            if (got != expected) REQUIRE(got == expected);
            const bool refused = expected != "done" && expected != "dropped";
            REQUIRE(owner.host.adapter.state(owner.host.number) == (refused ? QueuePairState::error : state));
          }
        }
      }
    }
  }
}

TEST_CASE("a message that names a tag ends it in every state that receives, and in no other",
          "[fabric][memory][state]") {
  for (const QueuePairState state : kStates) {
    INFO(to_string(state));
    Owner owner(state);
    const bool connected = queue_pair_rules(state).connected;
    EntryOptions options;
    options.rights = kAllRights;
    options.invalidatable = true;
    const Stag tag = owner.host.adapter.table().register_region(owner.host.domain, owner.memory(), options).value();
    static_cast<void>(owner.host.receive(1, 0, 64));  // refused in error, where nothing comes in either
    Cell cell = owner.cell(Opcode::send_only_invalidate, ScriptedPeer::kPsn);
    cell.invalidate = tag;
    owner.put(cell, pattern(16, 1));
    owner.poll();
    CHECK(owner.host.adapter.table().find(tag)->valid == !connected);
    const auto completions = owner.host.take();
    REQUIRE(completions.size() == (connected ? 1 : 0));
    if (connected) CHECK(completions[0].tag == tag);
  }
}

// ---- tags whose time is over

namespace {

/// What a write by the tag comes to, at an owner that serves.
std::string try_to_write(Owner& owner, RemoteAddress at) {
  owner.request(Opcode::write_only, at);
  return outcome(owner, Opcode::write_only);
}

}  // namespace

TEST_CASE("a stale tag fails after deregistration, also when its index is used again", "[fabric][memory][stale]") {
  Owner owner(QueuePairState::ready_to_send);
  const RemoteAddress stale = owner.entry(EntryKind::region, Rights{} | Right::remote_write);
  REQUIRE(owner.host.adapter.deregister(stale.tag) == Status::ok);
  // 256 tags at most, so that the index comes back soon.
  for (int i = 0; i < 100'000; ++i) {
    const RemoteAddress next = owner.entry(EntryKind::region, Rights{} | Right::remote_write);
    if (next.tag.index() == stale.tag.index()) break;
    REQUIRE(owner.host.adapter.deregister(next.tag) == Status::ok);
  }
  REQUIRE(owner.host.adapter.table().find(stale.tag) == nullptr);
  CHECK(try_to_write(owner, stale) == "not such an entry");
}

TEST_CASE("a stale tag fails after its window was bound elsewhere, or to nothing", "[fabric][memory][stale]") {
  const EntryKind kind = GENERATE(EntryKind::window_type_1, EntryKind::window_type_2);
  const bool elsewhere = GENERATE(false, true);
  Owner owner(QueuePairState::ready_to_send);
  ProtectionTable& table = owner.host.adapter.table();
  const Consumer consumer{owner.host.domain, owner.host.number};
  const RemoteAddress stale = owner.entry(kind, Rights{} | Right::remote_write);
  Bind bind;
  bind.window = stale.tag;
  const Stag unbound = table.bind(bind, consumer).value();
  if (elsewhere) {
    bind.window = unbound;
    bind.key = static_cast<std::uint8_t>(stale.tag.instance() + 1);
    bind.length = 64;
    bind.rights = Rights{} | Right::remote_write;
    EntryOptions options;
    options.rights = kLocalRights | Right::window_binding;
    bind.region = table.register_region(owner.host.domain, owner.memory(), options).value();
    bind.address = owner.host.adapter.region_address(bind.region);
    REQUIRE(table.bind(bind, consumer));
  }
  CHECK(try_to_write(owner, stale) == "not such an entry");
}

TEST_CASE("a stale tag fails after its one use", "[fabric][memory][stale]") {
  const TouchControl touch = GENERATE(TouchControl::one_touch, TouchControl::one_shot);
  Owner owner(QueuePairState::ready_to_send);
  EntryOptions options;
  options.rights = kAllRights;
  options.touch = touch;
  const Stag tag = owner.host.adapter.table().register_region(owner.host.domain, owner.memory(), options).value();
  const RemoteAddress once{owner.host.adapter.region_address(tag), tag};
  REQUIRE(try_to_write(owner, once) == "done");
  owner.words[0] = kBefore;
  Cell again = owner.cell(Opcode::write_only, ScriptedPeer::kPsn + 1);
  again.tag = once.tag;
  again.address = once.address;
  again.message_bytes = sizeof kWritten;
  owner.put(again, std::as_bytes(std::span(&kWritten, 1)));
  CHECK(outcome(owner, Opcode::write_only) == "not such an entry");
}

TEST_CASE("a tag of the process's memory outlives a restart of either link end, and is stale once given up",
          "[fabric][memory][stale]") {
  const std::size_t who = GENERATE(0U, 1U);
  Owner owner(QueuePairState::ready_to_send);
  const RemoteAddress stale = owner.entry(EntryKind::region, Rights{} | Right::remote_write);
  owner.pair.link(who).restart();
  owner.pair.come_up();
  owner.poll();
  CHECK(owner.host.adapter.table().find(stale.tag) != nullptr);
  CHECK(owner.host.adapter.in_error(owner.host.number));
  owner.step(QueuePairEvent::reset);
  owner.step(QueuePairEvent::connect);
  CHECK(try_to_write(owner, stale) == "done");
  owner.words[0] = kBefore;
  // Registered again, the same memory has another tag and another address.
  REQUIRE(owner.host.adapter.deregister(stale.tag) == Status::ok);
  owner.step(QueuePairEvent::reset);
  owner.step(QueuePairEvent::connect);
  const RemoteAddress anew = owner.entry(EntryKind::region, Rights{} | Right::remote_write);
  CHECK(anew.tag != stale.tag);
  CHECK(anew.address != stale.address);
  CHECK(try_to_write(owner, stale) == "not such an entry");
}

}  // namespace splitnic::fabric::test::protection_states_test
