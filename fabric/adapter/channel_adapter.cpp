#include "fabric/adapter/channel_adapter.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "common/check.h"
#include "fabric/adapter/context.h"
#include "fabric/adapter/requester.h"
#include "fabric/adapter/responder.h"
#include "fabric/wire/cell.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kWellKnownNumbers = 16;
constexpr std::size_t kCellsInPerLane = 64;
constexpr std::size_t kCellsOut = 64;
constexpr std::size_t kCellsPerTurn = 8;        // of one queue pair, before the next has its turn
constexpr std::size_t kCellsAtPost = 8;         // what a post sends itself, when nothing waits before it
constexpr std::size_t kCellsPerPacket = 65536;  // by the cell sequence number's width

std::uint32_t fitting_payload(std::uint32_t bytes) {
  return std::clamp(bytes, kMinCellPayload, kMaxCellPayload) / 16 * 16;
}

}  // namespace

/// A queue pair's slot is the low bits of its number: the first sixteen are those of the well-known numbers, and a
/// drawn number is random above its slot's bits.
struct ChannelAdapter::State {
  State(FabricLink& link, const AdapterOptions& options, RandomSource& randomness)
      : random(randomness),
        context(link, options, randomness),
        requester(context),
        responder(context),
        own_cell_payload(context.options.cell_payload_bytes),
        slots(std::bit_ceil(kWellKnownNumbers + options.max_queue_pairs)),
        record(kMaxCellBytes + 2 * kFifoLine) {
    CHECK_OP(slots.size(), <=, std::size_t{1} << 20U);
    const std::size_t longest = kCellsPerPacket * kMinCellPayload;
    context.options.max_message_bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(options.max_message_bytes, longest));
    context.options.cell_payload_bytes = own_cell_payload = fitting_payload(options.cell_payload_bytes);
    active.reserve(slots.size());
    if (link.up()) begin_epoch();
  }

  [[nodiscard]] QueuePair* find(QpNumber number) const {
    QueuePair* candidate = slots[number.value & (slots.size() - 1)].get();
    return candidate != nullptr && candidate->number == number ? candidate : nullptr;
  }
  [[nodiscard]] std::optional<QpNumber> draw_number();
  void begin_epoch();
  void end_epoch();
  /// Notices that the link went down or through an epoch; true while it is up.
  bool follow_link();
  std::size_t receive_cells(VirtualLane lane);
  void take_cell(std::span<const std::byte> bytes);
  std::size_t send_cells();

  RandomSource& random;
  AdapterContext context;
  Requester requester;
  Responder responder;
  std::uint32_t own_cell_payload;
  std::vector<std::unique_ptr<QueuePair>> slots;
  std::vector<QueuePair*> active;
  std::size_t turn = 0;  // whose turn it is in `active`
  std::vector<std::byte> record;
  std::uint32_t domains = 0;
  std::uint64_t incarnation = 0;
  bool epoch_open = false;
};

void ChannelAdapter::State::begin_epoch() {
  epoch_open = true;
  incarnation = context.link.incarnation();
  context.grants.start(context.link);
  context.peer_grants.start();
}

void ChannelAdapter::State::end_epoch() {
  epoch_open = false;
  for (QueuePair* queue_pair : active) void_queue_pair(context, *queue_pair);
  context.table.clear();
}

bool ChannelAdapter::State::follow_link() {
  const bool same = context.link.up() && context.link.incarnation() == incarnation;
  if (epoch_open && same) return true;
  if (epoch_open) end_epoch();
  if (!context.link.up()) return false;
  begin_epoch();
  return true;
}

std::optional<QpNumber> ChannelAdapter::State::draw_number() {
  std::vector<std::uint32_t> free;
  for (std::size_t slot = kWellKnownNumbers; slot < slots.size(); ++slot) {
    if (slots[slot] == nullptr) free.push_back(static_cast<std::uint32_t>(slot));
  }
  if (free.empty()) return std::nullopt;
  const std::uint32_t slot = free[static_cast<std::size_t>(random.below(free.size()))];
  const auto mask = static_cast<std::uint32_t>(slots.size() - 1);
  return QpNumber{(random.next32() & kMaxQueuePairNumber & ~mask) | slot};
}

void ChannelAdapter::State::take_cell(std::span<const std::byte> bytes) {
  const auto cell = decode_cell(bytes);
  if (!cell) {
    ++context.counters.dropped_bad_cell;
    return;
  }
  const bool for_us =
      cell->destination == context.link.port_address() && cell->source == context.link.peer_port_address();
  if (!for_us) {
    ++context.counters.dropped_wrong_address;
    return;
  }
  QueuePair* queue_pair = find(cell->destination_queue_pair);
  if (queue_pair == nullptr || queue_pair->peer != cell->source_queue_pair) {
    ++context.counters.dropped_unknown_queue_pair;
    return;
  }
  if (cell->opcode == Opcode::acknowledge) {
    requester.take_acknowledgement(*queue_pair, *cell);
  } else {
    responder.take(*queue_pair, *cell, bytes);
  }
}

std::size_t ChannelAdapter::State::receive_cells(VirtualLane lane) {
  FifoReceiver& receiver = context.link.receiver(lane);
  std::size_t taken = 0;
  for (; taken < kCellsInPerLane; ++taken) {
    const auto front = receiver.front();
    if (!front) break;
    ++context.counters.cells_received;
    // The one read of what the peer wrote: all that follows works on the copy.
    const auto copy = std::span(record).first(std::min(front->size(), record.size()));
    front->copy_out(0, copy);
    receiver.pop();
    take_cell(copy);
  }
  // A lane that has run empty gives all its room back, so that a sender who waits for much of it can go on.
  receiver.push_tail(taken < kCellsInPerLane);
  return taken;
}

std::size_t ChannelAdapter::State::send_cells() {
  std::size_t sent = 0;
  for (QueuePair* queue_pair : active) sent += responder.push_acknowledgement(*queue_pair) ? 1 : 0;
  std::size_t budget = kCellsOut;
  std::size_t idle_turns = 0;
  while (budget > 0 && idle_turns < active.size()) {
    turn = (turn + 1) % active.size();
    const std::size_t moved = requester.pump(*active[turn], std::min(budget, kCellsPerTurn));
    idle_turns = moved == 0 ? idle_turns + 1 : 0;
    budget -= moved;
  }
  return sent + kCellsOut - budget;
}

ChannelAdapter::ChannelAdapter(FabricLink& link, const AdapterOptions& options, RandomSource& random)
    : state_(std::make_unique<State>(link, options, random)) {}

ChannelAdapter::~ChannelAdapter() = default;

ProtectionDomain ChannelAdapter::allocate_domain() { return ProtectionDomain{++state_->domains}; }

std::optional<Stag> ChannelAdapter::register_memory(ProtectionDomain domain, std::span<std::byte> memory,
                                                    Rights rights) {
  state_->follow_link();
  return state_->context.table.insert(domain, RegionMemory::of_process(memory), rights, false);
}

std::optional<Stag> ChannelAdapter::register_bridge_memory(ProtectionDomain domain, MemoryRange range, Rights rights,
                                                           bool placeable) {
  if (!state_->follow_link()) return std::nullopt;
  AdapterContext& context = state_->context;
  const MemoryRange all = context.link.buffers();
  const bool inside = range.offset >= all.offset && range.offset - all.offset <= all.bytes &&
                      range.bytes <= all.bytes - (range.offset - all.offset);
  if (!inside) return std::nullopt;
  const auto memory =
      RegionMemory::of_bridge(context.link.bridge().local_memory().slice(range.offset, range.bytes), range.offset);
  const auto tag = context.table.insert(domain, memory, rights, placeable);
  if (tag && placeable) {
    MptGrant grant;
    grant.tag = *tag;
    grant.address = region_address(*tag);
    grant.length = range.bytes;
    grant.window_offset = range.offset;
    grant.rights = rights;
    // No slot is no loss: the peer's writes to it come segmented.
    static_cast<void>(context.grants.grant(context.link, grant));
  }
  return tag;
}

std::uint64_t ChannelAdapter::region_address(Stag tag) const {
  const ProtectionEntry* entry = state_->context.table.find(tag);
  return entry == nullptr ? 0 : entry->base;
}

Status ChannelAdapter::deregister(Stag tag) {
  const bool up = state_->follow_link();
  AdapterContext& context = state_->context;
  const ProtectionEntry* entry = context.table.find(tag);
  if (entry == nullptr) return Status::bad_tag;
  if (entry->placeable && up) context.grants.revoke(context.link, tag);
  context.table.remove(tag);
  return Status::ok;
}

CqNumber ChannelAdapter::create_completion_queue(std::size_t capacity) {
  auto& queues = state_->context.completion_queues;
  queues.emplace_back(capacity);
  return CqNumber{static_cast<std::uint32_t>(queues.size())};
}

std::optional<QpNumber> ChannelAdapter::create_queue_pair(const QueuePairOptions& options) {
  state_->follow_link();
  AdapterContext& context = state_->context;
  const bool queues_exist = context.completion_queue(options.send_completions) != nullptr &&
                            context.completion_queue(options.receive_completions) != nullptr;
  if (!queues_exist || state_->active.size() == context.options.max_queue_pairs) return std::nullopt;
  QpNumber number = options.number;
  if (number.value == 0) {
    const auto drawn = state_->draw_number();
    if (!drawn) return std::nullopt;
    number = *drawn;
  } else if (number.value >= kWellKnownNumbers || state_->slots[number.value] != nullptr) {
    return std::nullopt;
  }
  auto& slot = state_->slots[number.value & (state_->slots.size() - 1)];
  slot = std::make_unique<QueuePair>(number, options);
  state_->active.push_back(slot.get());
  return number;
}

Status ChannelAdapter::connect(QpNumber queue_pair, const QueuePairPeer& peer) {
  if (!state_->follow_link()) return Status::link_down;
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  const QueuePairMove& move = queue_pair_move(found->state, QueuePairEvent::connect);
  if (!move.legal) return Status::bad_state;
  if (peer.number.value == 0 || peer.number.value > kMaxQueuePairNumber) return Status::bad_queue_pair;
  found->state = move.to;
  found->peer = peer.number;
  found->send.first_psn = peer.first_psn_to_send;
  found->send.retries_left = state_->context.options.retry_count;
  found->send.receiver_not_ready_left = state_->context.options.receiver_not_ready_retries;
  found->expected_psn = peer.first_psn_expected;
  return Status::ok;
}

Status ChannelAdapter::destroy_queue_pair(QpNumber queue_pair) {
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  fail_queue_pair(state_->context, *found, CompletionStatus::flushed);
  std::erase(state_->active, found);
  state_->slots[queue_pair.value & (state_->slots.size() - 1)].reset();
  return Status::ok;
}

bool ChannelAdapter::in_error(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  return found == nullptr || found->state == QueuePairState::error;
}

std::size_t ChannelAdapter::send_room(QpNumber queue_pair) const {
  const QueuePair* found = state_->find(queue_pair);
  if (found == nullptr || found->state != QueuePairState::ready) return 0;
  const auto used = static_cast<std::size_t>(found->send.posted - found->send.done);
  const CompletionQueue* queue = state_->context.completion_queue(found->options.send_completions);
  return std::min(found->send.depth - used, queue->room());
}

Status ChannelAdapter::post_send(QpNumber queue_pair, const WorkRequest& request) {
  if (!state_->follow_link()) return Status::link_down;
  QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  const bool idle = found->send.next == found->send.posted;
  const Status status = state_->requester.post(*found, request);
  if (status == Status::ok && idle) state_->requester.pump(*found, kCellsAtPost);
  return status;
}

Status ChannelAdapter::post_receive(QpNumber queue_pair, const ReceiveRequest& request) {
  state_->follow_link();
  QueuePair* found = state_->find(queue_pair);
  return found == nullptr ? Status::bad_queue_pair : state_->responder.post(*found, request);
}

std::size_t ChannelAdapter::poll_completions(CqNumber queue, std::span<Completion> out) {
  CompletionQueue* found = state_->context.completion_queue(queue);
  return found == nullptr ? 0 : found->poll(out);
}

std::optional<std::size_t> ChannelAdapter::claim_direct(RemoteAddress remote, std::uint32_t bytes) {
  if (!state_->follow_link()) return std::nullopt;
  AdapterContext& context = state_->context;
  return context.peer_grants.claim(context.link, remote.tag, remote.address, bytes);
}

std::size_t ChannelAdapter::poll(Time now) {
  const std::size_t received = receive(now);
  const std::size_t sent = send();
  // Once for everything written since the last time, posts included.
  state_->context.link.notify();
  return received + sent;
}

std::size_t ChannelAdapter::receive(Time now) {
  state_->context.now = now;
  if (!state_->follow_link()) return 0;
  return state_->receive_cells(VirtualLane::control) + state_->receive_cells(VirtualLane::data);
}

std::size_t ChannelAdapter::send() {
  if (!state_->follow_link()) return 0;
  for (QueuePair* queue_pair : state_->active) state_->requester.check_time(*queue_pair);
  return state_->send_cells();
}

Time ChannelAdapter::next_deadline() const {
  Time deadline = kNever;
  if (!state_->context.link.up()) return deadline;
  for (const QueuePair* queue_pair : state_->active) {
    deadline = std::min(deadline, state_->requester.next_deadline(*queue_pair));
  }
  return deadline;
}

bool ChannelAdapter::outstanding() const {
  return std::any_of(state_->active.begin(), state_->active.end(), [](const QueuePair* queue_pair) {
    return queue_pair->send.done != queue_pair->send.posted || queue_pair->acknowledgement.wanted ||
           queue_pair->incoming.active;
  });
}

void ChannelAdapter::set_cell_payload(std::uint32_t bytes) {
  state_->context.options.cell_payload_bytes = std::min(state_->own_cell_payload, fitting_payload(bytes));
}

const AdapterCounters& ChannelAdapter::counters() const { return state_->context.counters; }

FabricLink& ChannelAdapter::link() { return state_->context.link; }

}  // namespace splitnic::fabric
