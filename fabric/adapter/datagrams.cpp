#include "fabric/adapter/datagrams.h"

#include <algorithm>
#include <array>

#include "common/range.h"
#include "fabric/adapter/adapter_state.h"
#include "fabric/adapter/local_memory.h"
#include "fabric/adapter/transport_faults.h"

namespace splitnic::fabric {
namespace {

/// The longest that a datagram waits for a path to come up for the first time.
constexpr Duration kFirstPathMax = std::chrono::seconds(2);
/// The longest that a datagram waits for room while datagrams to other peers wait behind it. A live peer on a machine
/// with several times more to do than processors is back on one by then.
constexpr Duration kDelaysOthersMax = std::chrono::milliseconds(100);
constexpr std::uint8_t kMaxServiceLevel = 15;

/// Calls visit() with the handle of each datagram that is posted and has not left.
template <class Visit>
void for_waiting(DatagramTables::QueuePairs queue_pairs, Visit&& visit) {
  for (const QueuePair* queue_pair : queue_pairs) {
    if (!queue_pair->options.datagram) continue;
    const SendQueue& send = queue_pair->send;
    for (std::uint64_t at = send.next; at != send.posted; ++at) visit(send.entries[at].request.datagram.handle);
  }
}

/// Whether a handle that is destroyed, and kept, leads to what is chosen.
template <class Chosen>
bool any_ending(std::span<const AddressHandle> handles, Chosen chosen) {
  return std::ranges::any_of(handles,
                             [&](const AddressHandle& handle) { return handle.ending && chosen(handle.options); });
}

}  // namespace

// ---- handles and groups

std::optional<AddressHandleNumber> DatagramTables::create(const AddressHandleOptions& options, std::size_t most,
                                                          QueuePairs queue_pairs) {
  auto free = std::ranges::find_if(handles_, &AddressHandle::is_free);
  const bool full = free == handles_.end() && handles_.size() == std::min(most, kMostHandles);
  if (full) {
    end_where_none_wait(queue_pairs);
    free = std::ranges::find_if(handles_, &AddressHandle::is_free);
    if (free == handles_.end()) return std::nullopt;
  }
  if (free == handles_.end()) free = handles_.insert(free, AddressHandle{});
  free->options = options;
  free->used = true;
  return AddressHandleNumber{free->generation << kIndexBits | static_cast<std::uint32_t>(free - handles_.begin() + 1)};
}

bool DatagramTables::destroy(AddressHandleNumber number, QueuePairs queue_pairs) {
  if (find(number) == nullptr) return false;
  AddressHandle& handle = handles_[(number.value & kMostHandles) - 1];
  bool waited_for = false;
  for_waiting(queue_pairs, [&](AddressHandleNumber posted) { waited_for = waited_for || posted == number; });
  if (!waited_for) {
    handle.retire();
    return true;
  }
  handle.used = false;
  handle.ending = true;
  ++ending_;
  return true;
}

void DatagramTables::end(AddressHandle& handle) {
  if (handle.ending) --ending_;
  handle.retire();
}

void DatagramTables::end_where_none_wait(QueuePairs queue_pairs) {
  if (ending_ == 0) return;
  for (AddressHandle& handle : handles_) handle.waited_for = false;
  for_waiting(queue_pairs, [&](AddressHandleNumber posted) {
    if (find_posted(posted) != nullptr) handles_[(posted.value & kMostHandles) - 1].waited_for = true;
  });
  for (AddressHandle& handle : handles_) {
    if (handle.ending && !handle.waited_for) end(handle);
  }
}

bool DatagramTables::outlive_handle(PathNumber path, QueuePairs queue_pairs) {
  end_where_none_wait(queue_pairs);
  return ending_ != 0 && any_ending(handles_, [path](const AddressHandleOptions& to) { return to.path == path; });
}

bool DatagramTables::outlive_handle(const Gid& group, QueuePairs queue_pairs) {
  end_where_none_wait(queue_pairs);
  return ending_ != 0 && any_ending(handles_, [&group](const AddressHandleOptions& to) { return to.group == group; });
}

const DatagramTables::Group* DatagramTables::find(const Gid& group) const {
  const auto found = std::ranges::find(groups_, group, &Group::gid);
  return found == groups_.end() ? nullptr : &*found;
}

DatagramTables::Group* DatagramTables::find_or_make(const Gid& group, std::size_t most) {
  const auto found = std::ranges::find(groups_, group, &Group::gid);
  if (found != groups_.end()) return &*found;
  if (groups_.size() == most) return nullptr;
  groups_.push_back(Group{.gid = group});
  return &groups_.back();
}

/// Leaves its place empty, so that a datagram whose copies are on their way counts on as before.
bool DatagramTables::remove_member(Group& group, PathNumber path) {
  const auto found = std::ranges::find(group.members, path);
  if (found == group.members.end()) return false;
  *found = {};
  while (!group.members.empty() && group.members.back() == PathNumber{}) group.members.pop_back();
  return true;
}

void DatagramTables::drop_empty_groups() {
  std::erase_if(groups_, [](const Group& group) { return group.attached.empty() && group.members.empty(); });
}

Status DatagramTables::attach(QpNumber queue_pair, const Gid& gid, std::size_t most_groups) {
  Group* group = find_or_make(gid, most_groups);
  if (group == nullptr) return Status::no_resources;
  if (std::ranges::find(group->attached, queue_pair) != group->attached.end()) return Status::in_use;
  group->attached.push_back(queue_pair);
  return Status::ok;
}

Status DatagramTables::add(PathNumber path, const Gid& gid, std::size_t most_groups) {
  Group* group = find_or_make(gid, most_groups);
  if (group == nullptr) return Status::no_resources;
  if (std::ranges::find(group->members, path) != group->members.end()) return Status::in_use;
  const auto free = std::ranges::find(group->members, PathNumber{});
  if (free != group->members.end()) {
    *free = path;
  } else {
    group->members.push_back(path);
  }
  return Status::ok;
}

Status DatagramTables::remove(QpNumber queue_pair, const Gid& gid) {
  const auto group = std::ranges::find(groups_, gid, &Group::gid);
  const bool was = group != groups_.end() && std::erase(group->attached, queue_pair) != 0;
  drop_empty_groups();
  return was ? Status::ok : Status::bad_argument;
}

Status DatagramTables::remove(PathNumber path, const Gid& gid) {
  const auto group = std::ranges::find(groups_, gid, &Group::gid);
  const bool was = group != groups_.end() && remove_member(*group, path);
  drop_empty_groups();
  return was ? Status::ok : Status::bad_argument;
}

void DatagramTables::forget(PathNumber path) {
  for (AddressHandle& handle : handles_) {
    if (!handle.is_free() && handle.options.path == path) end(handle);
  }
  for (Group& group : groups_) remove_member(group, path);
  drop_empty_groups();
}

void DatagramTables::forget(QpNumber queue_pair) {
  for (Group& group : groups_) std::erase(group.attached, queue_pair);
  drop_empty_groups();
}

std::optional<AddressHandleNumber> ChannelAdapter::create_address_handle(const AddressHandleOptions& options) {
  AdapterContext& context = state_->context;
  if (options.service_level > kMaxServiceLevel || options.flow_label > kMaxFlowLabel) return std::nullopt;
  AddressHandleOptions with = options;
  if (options.group == Gid{}) {
    const Path* path = context.path(options.path);
    if (path == nullptr) return std::nullopt;
    with.path = path->number;
  } else if (!options.group.is_group() || options.path.value != 0) {
    return std::nullopt;
  }
  return context.datagrams.create(with, context.options.max_address_handles, state_->queue_pairs);
}

Status ChannelAdapter::destroy_address_handle(AddressHandleNumber handle) {
  return state_->context.datagrams.destroy(handle, state_->queue_pairs) ? Status::ok : Status::bad_argument;
}

bool ChannelAdapter::datagrams_outlive_handle(PathNumber path) {
  return state_->context.datagrams.outlive_handle(path, state_->queue_pairs);
}

bool ChannelAdapter::datagrams_outlive_handle(const Gid& group) {
  return state_->context.datagrams.outlive_handle(group, state_->queue_pairs);
}

Status ChannelAdapter::attach_to_group(QpNumber queue_pair, const Gid& group) {
  const QueuePair* found = state_->find(queue_pair);
  if (found == nullptr) return Status::bad_queue_pair;
  if (!group.is_group()) return Status::bad_argument;
  if (!found->options.datagram) return Status::not_permitted;
  return state_->context.datagrams.attach(queue_pair, group, state_->context.options.max_groups);
}

Status ChannelAdapter::detach_from_group(QpNumber queue_pair, const Gid& group) {
  return state_->context.datagrams.remove(queue_pair, group);
}

Status ChannelAdapter::add_group_member(const Gid& group, PathNumber number) {
  const Path* path = state_->context.path(number);
  if (path == nullptr || !group.is_group()) return Status::bad_argument;
  return state_->context.datagrams.add(path->number, group, state_->context.options.max_groups);
}

Status ChannelAdapter::remove_group_member(const Gid& group, PathNumber number) {
  const Path* path = state_->context.path(number);
  return path == nullptr ? Status::bad_argument : state_->context.datagrams.remove(path->number, group);
}

// ---- what goes out

Status check_datagram(const AdapterContext& context, const WorkRequest& request, std::uint64_t total) {
  const bool sends = request.operation == Operation::send || request.operation == Operation::send_with_immediate;
  if (!sends) return Status::not_permitted;
  const AddressHandle* to = context.datagrams.find(request.datagram.handle);
  if (to == nullptr) return Status::bad_argument;
  const QpNumber queue_pair = request.datagram.queue_pair;
  if (!to->to_group() && (queue_pair.value == 0 || queue_pair.value >= kMulticastQueuePair.value)) {
    return Status::bad_queue_pair;
  }
  if (total > context.options.max_datagram_bytes) return Status::bad_length;
  std::uint64_t cell = context.options.cell_payload_bytes;
  if (!to->to_group())
    cell = std::min<std::uint64_t>(cell, context.paths[to->options.path.value - 1]->cell_payload_bytes);
  return total + sizeof(DatagramBytes) <= cell ? Status::ok : Status::bad_length;
}

namespace {

/// Whether a copy of this datagram goes by another path.
bool leads_elsewhere(const DatagramTables& tables, AddressHandleNumber handle, PathNumber path) {
  const AddressHandle* to = tables.find_posted(handle);
  return to != nullptr && (to->to_group() || to->options.path != path);
}

/// Whether the datagram that waits for room on this path holds up others. Looks at each posted request once.
bool delays_others(const DatagramTables& tables, SendQueue& send, PathNumber path) {
  for (; send.same_way_to != send.posted; ++send.same_way_to) {
    if (leads_elsewhere(tables, send.entries[send.same_way_to].request.datagram.handle, path)) return true;
  }
  return false;
}

}  // namespace

/// Tries a copy that finds no room again in each poll, for one timeout from the first of them, then drops copies for
/// this path until there is room again. A datagram to one peer waits for kDelaysOthersMax at most while others wait
/// behind it: so a peer that takes nothing delays them once, and a slow one keeps its flow control, because the time
/// begins anew whenever there was room. Copies for a group wait for the whole timeout, because all of its members are
/// to get all of them. The timeout of a path that has not been up yet is longer, whatever waits: a program that has
/// just learned where its peer is sends at once.
Requester::Step Requester::send_datagram(QueuePair& queue_pair, SendEntry& entry) {
  SendQueue& send = queue_pair.send;
  const AddressHandle* to = context_.datagrams.find_posted(entry.request.datagram.handle);
  if (to == nullptr) ++context_.counters.dropped_datagram_no_path;
  std::span<const PathNumber> paths;
  if (to != nullptr && to->to_group()) {
    if (const auto* group = context_.datagrams.find(to->options.group)) paths = group->members;
  } else if (to != nullptr) {
    paths = std::span(&to->options.path, 1);
  }
  bool any = false;
  for (; send.next_cell < paths.size(); ++send.next_cell) {  // the copies that are done
    if (paths[send.next_cell] == PathNumber{}) {             // a member that has left
      send.drop_at = kNever;
      continue;
    }
    const Copy copy = send_copy(queue_pair, entry, *to, paths[send.next_cell]);
    if (copy != Copy::blocked) send.drop_at = kNever;
    if (copy == Copy::failed) return fail_at_turn(queue_pair, entry, CompletionStatus::local_protection_error);
    if (copy == Copy::blocked) {
      Path* path = context_.path(paths[send.next_cell]);
      if (send.drop_at == kNever && !path->takes_no_datagrams) {
        // The next poll begins the time: `now` of a post may be as old as its caller's sleep.
        send.drop_at = SendQueue::kWaits;
        send.same_way_to = send.next + 1;
        return Step::stop;
      }
      const bool was_up = path->open || path->incarnation != 0;
      if (send.drop_at == SendQueue::kWaits) {
        send.drop_at = context_.now + (was_up ? context_.options.ack_timeout : kFirstPathMax);
      }
      const Time soon = context_.now + kDelaysOthersMax;
      if (was_up && !to->to_group() && send.drop_at != kNever && soon < send.drop_at &&
          delays_others(context_.datagrams, send, path->number)) {
        send.drop_at = soon;
      }
      if (send.drop_at != kNever && context_.now < send.drop_at) return Step::stop;
      send.drop_at = kNever;
      path->takes_no_datagrams = true;
      ++context_.counters.dropped_datagram_no_room;
    } else if (copy == Copy::sent) {
      any = true;
      context_.path(paths[send.next_cell])->takes_no_datagrams = false;
    }
  }
  send.drop_at = kNever;  // if the handle has ended, or the copy that waited was the last and its member has left
  number(queue_pair, entry);
  message_sent(queue_pair);
  return any ? Step::cell : Step::carried_out;
}

Requester::Copy Requester::send_copy(QueuePair& queue_pair, SendEntry& entry, const AddressHandle& to, PathNumber by) {
  const DatagramTarget& target = entry.request.datagram;
  const VirtualLane lane = queue_pair.options.lane;
  Path* path = context_.path(by);
  if (path != nullptr) context_.turns.attend(*path);  // also for what it may have to wait for
  if (path != nullptr && !path->open && path->link.awaited()) return Copy::blocked;
  if (path == nullptr || !path->open || !path->link.up()) {
    ++context_.counters.dropped_datagram_no_path;
    return Copy::dropped;
  }
  const std::size_t bytes = sizeof(DatagramBytes) + entry.bytes;
  if (bytes > path->cell_payload(lane)) {
    ++context_.counters.dropped_datagram_too_long;
    return Copy::dropped;
  }
  DatagramHeader header;
  header.queue_key = queue_key_of(queue_pair.options, target);
  header.source_queue_pair = queue_pair.number;
  header.flow_label = to.options.flow_label;
  header.traffic_class = to.options.traffic_class;
  header.hop_limit = to.options.hop_limit;
  header.group = to.options.group;
  Cell cell;
  const bool immediate = entry.request.operation == Operation::send_with_immediate;
  cell.opcode = immediate ? Opcode::datagram_immediate : Opcode::datagram;
  cell.immediate = entry.request.immediate;
  cell.service_level = to.options.service_level;
  cell.solicited = entry.request.solicited;
  cell.destination_queue_pair = to.to_group() ? kMulticastQueuePair : target.queue_pair;
  cell.source_queue_pair = queue_pair.number;
  cell.packet_sequence = queue_pair.send.next_psn;
  ClaimedPayload payload;
  if (!path->claim(lane, cell, bytes, payload)) return Copy::blocked;
  const DatagramBytes head_bytes = encode_datagram(header);
  const auto head = std::as_bytes(std::span(&head_bytes, 1));
  payload.put(head);
  if (!load(queue_pair, entry, payload)) return Copy::failed;
  ++context_.counters.datagrams_sent;
  const bool faulty = context_.options.faults != nullptr;
  if (faulty && is_lost(queue_pair, entry)) return Copy::sent;
  std::uint32_t packet_crc = kPacketCrcStart;
  release_cell(context_, *path, lane, cell, bytes, packet_crc);
  if (faulty) send_twice(queue_pair, entry, *path, cell, bytes, head, kPacketCrcStart);
  return Copy::sent;
}

Time Requester::next_datagram_deadline(const QueuePair& queue_pair) const {
  const SendQueue& send = queue_pair.send;
  if (!queue_pair.sends_on() || send.next == send.posted) return kNever;
  if (context_.now < send.hold_until) return send.hold_until;
  const bool delays = send.entries[send.next].request.operation == Operation::delay;
  const Time until = delays ? send.delay_until : send.drop_at;
  const bool has_begun = until != kNever && until != SendQueue::kWaits;
  return has_begun ? std::max(until, context_.now) : context_.now;
}

// ---- what comes in

void ChannelAdapter::State::take_datagram(Path& path, const ReceivedCell& received) {
  const Cell& cell = received.cell;
  const CellPayload& payload = received.payload;
  std::uint32_t packet_crc = kPacketCrcStart;
  DatagramBytes bytes;
  const bool whole = payload.size() >= sizeof bytes && (!path.corrupts || packet_is_whole(packet_crc, received));
  if (!whole) {
    ++context.counters.dropped_bad_cell;
    return;
  }
  payload.slice(0, sizeof bytes).copy_out(std::as_writable_bytes(std::span(&bytes, 1)));
  DatagramHeader header;
  const bool from_one = decode_datagram(bytes, header) &&
                        (cell.source_queue_pair.value == 0 || cell.source_queue_pair == header.source_queue_pair);
  const bool multicast = cell.destination_queue_pair == kMulticastQueuePair;
  if (!from_one || multicast != header.group.is_group()) {
    ++context.counters.dropped_bad_cell;
    return;
  }
  const CellPayload message = payload.slice(sizeof bytes, payload.size() - sizeof bytes);
  const auto takes = [](const QueuePair* queue_pair) {
    return queue_pair != nullptr && queue_pair->options.datagram && queue_pair->rules().connected;
  };
  if (!multicast) {
    QueuePair* queue_pair = find(cell.destination_queue_pair);
    if (takes(queue_pair)) return responder.take_datagram(*queue_pair, path, header, cell, message);
    ++context.counters.dropped_unknown_queue_pair;
    return;
  }
  std::size_t takers = 0;
  if (const auto* group = context.datagrams.find(header.group)) {
    for (const QpNumber number : group->attached) {
      QueuePair* queue_pair = find(number);
      if (!takes(queue_pair)) continue;
      ++takers;
      // Each of them gets a copy of its own; nothing of one decides about another.
      for (const PeerMemory& piece : message.pieces()) piece.next_message();
      responder.take_datagram(*queue_pair, path, header, cell, message);
    }
  }
  if (takers == 0) ++context.counters.dropped_no_group_member;
}

void Responder::take_datagram(QueuePair& queue_pair, const Path& path, const DatagramHeader& header, const Cell& cell,
                              const CellPayload& message) {
  AdapterCounters& counters = context_.counters;
  const ArrivingMessage arriving{queue_pair.number, cell.packet_sequence, MessageKind::datagram};
  if (context_.options.faults != nullptr && context_.options.faults->damages(arriving)) {
    ++counters.dropped_bad_cell;
    return;
  }
  if (header.queue_key != queue_pair.options.queue_key) {
    ++counters.dropped_wrong_queue_key;
    return;
  }
  if (have_receive(queue_pair) != Verdict::good) {
    ++counters.dropped_no_receive;
    return;
  }
  const ReceiveEntry& entry = queue_pair.receive.entries[queue_pair.receive.taken];
  if (!within(entry.bytes, {kRouteHeaderBytes, message.size()})) {
    ++counters.dropped_datagram_too_long;
    return;
  }
  RouteHeader route = route_of(header, path.route, message.size());
  const auto route_bytes = std::as_writable_bytes(std::span(&route, 1));
  const CellPayload before(PeerMemory::over(route_bytes.data(), route_bytes.size()));
  if (!scatter(queue_pair, 0, before) || !scatter(queue_pair, kRouteHeaderBytes, message)) {
    ++counters.dropped_unacknowledged;
    return;
  }
  const auto bytes = kRouteHeaderBytes + static_cast<std::uint32_t>(message.size());
  complete_datagram(
      context_, queue_pair,
      {header.source_queue_pair, path.number, bytes, cell.solicited, traits(cell.opcode).immediate, cell.immediate});
}

}  // namespace splitnic::fabric
