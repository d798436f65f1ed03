#include "fabric/bridge/link.h"

#include <algorithm>
#include <bit>
#include <boost/endian/buffers.hpp>

#include "common/check.h"
#include "common/crc32c.h"
#include "fabric/bridge/link_layout.h"
#include "fabric/wire/slot_cell.h"

namespace splitnic::fabric {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kProtocolName = 0x534e;  // "SN"
constexpr std::uint32_t kProtocolVersion = 1;

// How often an end that is not up repeats its announcement and its doorbell, either of which may be lost.
constexpr Duration kAnnounceAgain = milliseconds(50);
// While anything is outstanding, this end polls again within this time: a doorbell may be lost.
constexpr Duration kLookAgain = milliseconds(100);
constexpr Duration kLastCells = milliseconds(100);
// A doorbell that has not rung after this time was left out; it is not on its way.
constexpr Duration kLeftOutAge = milliseconds(10);
// How often an end that is up looks at the bridge and the peer's announcement. A busy end polls several times as often.
constexpr Duration kLookAtBridgeEvery = std::chrono::microseconds(1);
// How often a busy end empties its doorbells, which is where a bridge notices that the peer has hung up.
constexpr Duration kHangUpCheck = milliseconds(10);

enum Word : std::size_t { protocol, phase_word, epoch_low, epoch_high, echoed_low, echoed_high, anchor_word, check };
constexpr std::size_t kGroupWords = 8;
static_assert(kGroupWords <= kScratchpads);
using GroupWords = std::array<std::uint32_t, kGroupWords>;

std::uint32_t check_of(const GroupWords& words) {
  std::array<boost::endian::little_uint32_buf_t, kGroupWords - 1> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = words[i];
  return crc32c(std::as_bytes(std::span(bytes)));
}

std::uint32_t low_half(Epoch epoch) { return static_cast<std::uint32_t>(epoch.value); }
std::uint32_t high_half(Epoch epoch) { return static_cast<std::uint32_t>(epoch.value >> 32U); }
Epoch joined(std::uint32_t low, std::uint32_t high) { return Epoch{std::uint64_t{high} << 32U | low}; }

// The armed flag, 64 bits: sequence << 18 | core << 2 | wants return << 1 | asleep. "Wants return": its writer waits
// for room, or for something to be settled. The core is the one that its writer ran on, plus one, in 16 bits; 0:
// unknown. A producer rings once per value, so a flag that it has rung for, or that has become stale on its way, wakes
// nobody twice.
constexpr std::uint64_t kAsleep = 1;
constexpr std::uint64_t kWantsReturn = 2;
constexpr unsigned kArmedCoreShift = 2;
constexpr std::uint32_t kArmedCoreMask = 0xFFFF;
constexpr unsigned kArmedSequenceShift = 18;
constexpr Duration kCoreBelieved = std::chrono::milliseconds(10);

/// The ring in `receiver`'s memory that `sender` sends into.
SlotRingPlace ring_place(const Anchor& receiver, const Anchor& sender, std::size_t lane) {
  SlotRingPlace place;
  place.slots_offset = receiver.slots[lane].offset;
  place.slot_lines = receiver.slots[lane].bytes / kSlotLine;
  place.payload_offset = receiver.payloads[lane].offset;
  place.payload_lines = receiver.payloads[lane].bytes / kSlotLine;
  place.tail_offset = sender.tails[lane].offset;
  return place;
}

CellFault cell_fault(SlotFault fault) {
  switch (fault) {
    case SlotFault::payload_bytes:
      return CellFault::payload_bytes;
    case SlotFault::payload_at:
      return CellFault::payload_at;
    case SlotFault::queue_pair:
      return CellFault::destination_queue_pair;
    case SlotFault::second_line:
      return CellFault::second_line;
    case SlotFault::shape:
      break;
  }
  return CellFault::slot_shape;
}

}  // namespace

struct FabricLink::PeerGroup {
  std::uint32_t version = 0;
  std::uint32_t phase = 0;
  Epoch epoch{};
  Epoch echoed{};
  std::uint32_t anchor_offset = 0;
};

std::uint32_t epoch_tag(Epoch sender, Epoch receiver) {
  std::array<boost::endian::little_uint64_buf_t, 2> bytes;
  bytes[0] = sender.value;
  bytes[1] = receiver.value;
  const std::uint32_t tag = crc32c(std::as_bytes(std::span(bytes)));
  return tag != 0 ? tag : 1;
}

FabricLink::FabricLink(Bridge& bridge, const LinkOptions& options, RandomSource& random)
    : bridge_(bridge), options_(options), random_(random), direct_(bridge) {
  const auto check = [](std::size_t bytes, std::size_t most) {
    SPLITNIC_CHECK(std::has_single_bit(bytes) && bytes >= LinkOptions::kMinRingBytes && bytes <= most);
  };
  for (const std::size_t bytes : options_.slot_bytes) check(bytes, LinkOptions::kMaxSlotBytes);
  for (const std::size_t bytes : options_.payload_bytes) check(bytes, LinkOptions::kMaxPayloadBytes);
  SPLITNIC_CHECK(options_.mpt_entries > 0);
  SPLITNIC_CHECK(options_.port_address.value >> 48U == 0);
  if (!bridge.peer_window().is_memory()) options_.store_clock = nullptr;  // what is claimed is copied once more
}

FabricLink::~FabricLink() = default;

// ---- announcements

void FabricLink::announce(GroupPhase phase) {
  announced_ = phase;
  GroupWords words{};
  words[protocol] = kProtocolName << 16U | kProtocolVersion;
  words[phase_word] = static_cast<std::uint32_t>(phase);
  words[epoch_low] = low_half(epoch_);
  words[epoch_high] = high_half(epoch_);
  words[echoed_low] = low_half(echoed_);
  words[echoed_high] = high_half(echoed_);
  words[anchor_word] = 0;  // the anchor opens the local memory
  words[check] = check_of(words);
  // L1 (publish): what lies in memory before the group that announces it. The anchor and the zeroed rings are local
  // stores, which a bridge shows to the peer's reads as soon as they are made.
  bridge_.publish();
  for (std::size_t i = 0; i < kGroupWords; ++i) bridge_.write_scratchpad(i, words[i]);
  bridge_.ring();
}

void FabricLink::announce_again(Time now) {
  if (now < announce_next_) return;
  announce_next_ = now + kAnnounceAgain;
  announce(announced_);
}

/// False while there is no group, or a torn one.
bool FabricLink::read_peer_group(PeerGroup& group) {
  GroupWords words{};
  for (std::size_t i = 0; i < kGroupWords; ++i) words[i] = bridge_.read_scratchpad(i);
  if (words[protocol] >> 16U != kProtocolName || words[check] != check_of(words)) return false;
  group.version = words[protocol] & 0xffffU;
  group.phase = words[phase_word];
  group.epoch = joined(words[epoch_low], words[epoch_high]);
  group.echoed = joined(words[echoed_low], words[echoed_high]);
  group.anchor_offset = words[anchor_word];
  peer_check_ = words[check];
  peer_epoch_low_ = words[epoch_low];
  has_peer_group_ = true;
  return true;
}

/// Scratchpad reads are slow on real bridges: two of them tell an end that is up whether to read the group again.
bool FabricLink::peer_group_changed() {
  return !has_peer_group_ || bridge_.read_scratchpad(check) != peer_check_ ||
         bridge_.read_scratchpad(epoch_low) != peer_epoch_low_;
}

// ---- epochs

/// Rings, cursors and flags of the epoch so far are used no more.
void FabricLink::void_epoch() {
  lanes_ = {};
  direct_.end();
  peer_port_address_ = PortAddress{};
  armed_ = 0;
  undelivered_ = torn_ = false;
}

void FabricLink::restart() {
  void_epoch();
  hung_up_at_.reset();
  fault_ = "";
  const Epoch before = epoch_;
  do {
    epoch_ = Epoch{random_.next()};
  } while (epoch_ == before || epoch_ == Epoch{});
  peer_epoch_ = echoed_ = Epoch{};
  has_peer_group_ = false;
  if (bridge_.link() == LinkState::down) {
    enter(LinkPhase::down);
    return;
  }
  enter(LinkPhase::init);
  announce(GroupPhase::init);
}

void FabricLink::fail_link(const char* why) {
  void_epoch();
  fault_ = why;
  enter(LinkPhase::faulty);
  announce(GroupPhase::faulty);
}

void FabricLink::answer_new_epoch(Epoch peer) {
  void_epoch();
  enter(LinkPhase::init);
  // L2 (flush): every write of ours for an older epoch of the peer has landed before the echo that lets it zero its
  // rings. Without it a late write could put an old slot into a new ring.
  bridge_.flush();
  peer_epoch_ = echoed_ = peer;
  announce(GroupPhase::init);
}

/// Own epoch echoed: nothing old can land here any more. False if the memory is too small for what it must hold.
bool FabricLink::lay_out() {
  const PeerMemory memory = bridge_.local_memory();
  const auto layout = layout_of(options_, memory.size());
  if (!layout) return false;
  layout_ = *layout;
  layout_.epoch = epoch_;
  layout_.peer_epoch = peer_epoch_;
  memory.zero(0, layout_.buffers.offset);
  const AnchorBytes anchor = encode_anchor(layout_);
  const auto bytes = std::as_bytes(std::span(&anchor, 1));
  memory.store_bytes(0, bytes.first(offsetof(AnchorBytes, commit)));
  memory.store<std::uint32_t>(offsetof(AnchorBytes, commit), anchor.commit.value());
  return true;
}

bool FabricLink::read_peer_anchor(std::size_t offset) {
  PeerWindow& window = bridge_.peer_window();
  if (offset % kSlotLine != 0 || !window.contains(offset, kAnchorBytes)) {
    fail_link("the peer's anchor offset lies outside its memory");
    return false;
  }
  AnchorBytes bytes{};
  window.read(offset, std::as_writable_bytes(std::span(&bytes, 1)));
  const auto anchor = decode_anchor(bytes, offset, window.size());
  if (!anchor) {
    // It died since, and its memory with it: then the copy may be all ones.
    if (bridge_.link() == LinkState::down || peer_group_changed()) return false;
    fail_link(anchor.error());
    return false;
  }
  if (anchor->epoch != peer_epoch_ || anchor->peer_epoch != epoch_) {
    fail_link("the peer's anchor is of other epochs than it announced");
    return false;
  }
  if (options_.peer_port_address && anchor->port_address != *options_.peer_port_address) {
    fail_link("the peer's anchor has another endnode's port address");
    return false;
  }
  go_up(*anchor, offset);
  return true;
}

void FabricLink::go_up(const Anchor& peer, std::size_t anchor_offset) {
  const std::uint32_t tag_out = epoch_tag(epoch_, peer_epoch_);
  const std::uint32_t tag_in = epoch_tag(peer_epoch_, epoch_);
  const StoreHabit stores(options_.store_clock);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    lanes_[lane].sender = SlotSender(bridge_, ring_place(peer, layout_, lane), tag_out);
    lanes_[lane].stores = stores;
    lanes_[lane].receiver = SlotReceiver(bridge_, ring_place(layout_, peer, lane), tag_in);
  }
  direct_.announced = stores;
  direct_.buffers = layout_.buffers;
  direct_.mpt = layout_.mpt;
  direct_.peer_buffers = peer.buffers;
  direct_.peer_mpt = peer.mpt;
  direct_.admissions = layout_.admissions;
  direct_.peer_admissions = peer.admissions;
  direct_.admission_changes = bridge_.local_memory().slice(layout_.admissions.offset, sizeof(std::uint64_t));
  direct_.tag_out = tag_out;
  direct_.tag_in = tag_in;
  direct_.peer_epochs_at = anchor_offset + offsetof(AnchorBytes, epoch);
  direct_.peer_epoch = peer_epoch_;
  direct_.own_epoch = epoch_;
  peer_port_address_ = peer.port_address;
  peer_armed_offset_ = peer.armed.offset;
  armed_sequence_ = rung_for_ = notified_lines_ = postponed_lines_ = notified_returns_ = 0;
  ++incarnation_;
  enter(LinkPhase::up);
  // The peer may have gone to sleep between its own last poll and the moment when this end became ready.
  bridge_.ring();
}

bool FabricLink::rests(Time now) const {
  const bool just_looked = now > bridge_looked_at_ && now - bridge_looked_at_ < kLookAtBridgeEvery;
  const bool nothing_due = phase_ == LinkPhase::up ? now < ring_again_next_ : phase_ == LinkPhase::down;
  return just_looked && nothing_due;
}

std::size_t FabricLink::poll(Time now) {
  const LinkPhase before = phase_;
  now_ = now;
  if (rests(now)) return 0;
  bridge_looked_at_ = now;
  if (now >= next_check_) {
    next_check_ = now + kHangUpCheck;
    if (bridge_.take_doorbells()) doorbell_taken_ = true;
  }
  if (bridge_.link() == LinkState::down && !hung_up_at_) {
    // A peer that hung up as soon as this end was ready may have sent something all the same.
    if (phase_ == LinkPhase::ready) step(now);
    hung_up_at_ = now;
    last_consumed_ = 0;
  }
  if (!hung_up_at_) {
    step(now);
  } else if (!takes_last_cells(now)) {
    hung_up_at_.reset();
    if (phase_ != LinkPhase::down) void_epoch();
    enter(LinkPhase::down);
  }
  return phase_ != before ? 1 : 0;
}

/// What the peer has sent and settled before it hung up is in this end's memory, and still counts. If none of it is
/// taken for kLastCells, it is lost.
bool FabricLink::takes_last_cells(Time now) {
  std::uint64_t consumed = 0;
  for (const Lane& lane : lanes_) consumed += lane.receiver.consumed();
  if (consumed != last_consumed_) hung_up_at_ = now;
  last_consumed_ = consumed;
  if (!up() || now - *hung_up_at_ >= kLastCells || rings_faulty()) return false;
  // After the hang-up was noticed, so that both are the last. Only looked at: they are for who uses the lanes.
  return std::ranges::any_of(lanes_,
                             [](const Lane& lane) { return lane.receiver.waiting() || lane.sender.has_news(); });
}

void FabricLink::step(Time now) {
  switch (phase_) {
    case LinkPhase::down:
      // What was in flight when the bridge went down is lost: nothing of the old epoch can go on.
      restart();
      announce_next_ = now + kAnnounceAgain;
      return;
    case LinkPhase::faulty:
      return;
    case LinkPhase::up:
      step_up(now);
      return;
    case LinkPhase::init:
    case LinkPhase::ready: {
      PeerGroup group;
      if (read_peer_group(group)) follow(group);
      if (phase_ == LinkPhase::init || phase_ == LinkPhase::ready) announce_again(now);
      return;
    }
  }
}

void FabricLink::step_up(Time now) {
  if (rings_faulty()) {
    // A peer that has hung up may have discarded the memory, as a unit does that gives up a host which stood still. The
    // hang-up is noticed only now and then, and behind all doorbells that it has rung meanwhile.
    constexpr int kMostTakes = 64;
    for (int takes = 0; takes != kMostTakes && bridge_.take_doorbells(); ++takes) doorbell_taken_ = true;
    if (bridge_.link() != LinkState::down) fail_link("the peer wrote an impossible tail");
    return;
  }
  torn_ = false;
  if (peer_group_changed()) {
    PeerGroup group;
    torn_ = !read_peer_group(group);
    if (!torn_) follow(group);
    if (phase_ != LinkPhase::up) return;
  }
  if (now >= ring_again_next_) {
    ring_again_next_ = now + kLookAgain;
    if (!all_drained()) ring_if_asleep(RingFor::what_waits);
  }
}

/// Acts on what the peer announces; at most one change of phase.
void FabricLink::follow(const PeerGroup& group) {
  if (group.version != kProtocolVersion) {
    fail_link("the peer speaks another version of the link protocol");
    return;
  }
  if (group.epoch == Epoch{}) return;
  if (group.epoch != peer_epoch_) {
    answer_new_epoch(group.epoch);
    return;
  }
  const bool echoed = group.echoed == epoch_;
  const bool ready = group.phase == static_cast<std::uint32_t>(GroupPhase::ready);
  switch (phase_) {
    case LinkPhase::init:
      if (!echoed) return;
      if (!lay_out()) {
        fail_link("the bridge's memory is too small for the rings and tables");
        return;
      }
      enter(LinkPhase::ready);
      announce(GroupPhase::ready);
      return;
    case LinkPhase::ready:
      if (echoed && ready) static_cast<void>(read_peer_anchor(group.anchor_offset));
      return;
    case LinkPhase::up:
      // A peer that takes ready or the echo back without a new epoch has given this epoch up.
      if (!echoed || !ready) restart();
      return;
    case LinkPhase::down:
    case LinkPhase::faulty:
      return;
  }
}

// ---- cells

std::size_t FabricLink::max_payload(VirtualLane lane) const {
  return std::min<std::size_t>(at(lane).sender.max_payload_bytes(), kMaxCellPayload);
}

bool FabricLink::wants_room(VirtualLane lane) const { return at(lane).sender.wants_room(); }

bool FabricLink::drained(VirtualLane lane) { return at(lane).sender.drained(); }

bool FabricLink::claim(VirtualLane lane, const Cell& cell, std::size_t payload_bytes, ClaimedPayload& to) {
  SlotClaim& claim = at(lane).claimed;
  const std::size_t extension_bytes = slot_extension_bytes(cell.opcode);
  if (!at(lane).sender.claim(extension_bytes, payload_bytes, claim)) return false;
  if (extension_bytes != 0) encode_slot_extension(cell, claim.extension);
  to = ClaimedPayload(claim.payload, claim.payload_rest, &at(lane).stores);
  return true;
}

std::uint64_t FabricLink::release(VirtualLane lane, const Cell& cell, std::uint32_t& /*packet_crc*/) {
  SlotFields fields = slot_fields(cell);
  return at(lane).release(at(lane).claimed, fields);
}

/// A slot's fields by value; its payload stays where it is.
void FabricLink::read_front(Lane& lane, ReceivedSlot& slot) {
  lane.has_front = true;
  lane.front = ReceivedCell{};
  ReceivedCell& received = lane.front;
  const SlotFields fields = slot_fields(slot.header());
  received.fault = decode_slot_fields(fields, received.cell);
  if (slot.fault()) received.fault = cell_fault(*slot.fault());
  if (received.fault) return;
  lane.sender.note_settled(fields.settled);
  const auto headers = slot.extension(slot_extension_bytes(received.cell.opcode));
  const auto payload = slot.payload(headers.size());
  if (!payload) {
    received.fault = CellFault::payload_bytes;
    return;
  }
  received.payload = CellPayload(*payload);
  received.fault = decode_slot_extension(headers, payload->size(), received.cell);
}

const ReceivedCell* FabricLink::front(VirtualLane lane) {
  Lane& from = at(lane);
  if (from.has_front) return &from.front;
  ReceivedSlot* slot = from.receiver.front();
  if (slot == nullptr) return nullptr;
  read_front(from, *slot);
  return &from.front;
}

void FabricLink::pop(VirtualLane lane) {
  at(lane).has_front = false;
  at(lane).receiver.pop();
}

// ---- sleeping

bool FabricLink::rings_faulty() const {
  return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.sender.faulty(); });
}

bool FabricLink::all_drained() {
  return std::ranges::all_of(lanes_, [](Lane& lane) { return lane.sender.drained(); });
}

bool FabricLink::anything_waiting() {
  for (Lane& lane : lanes_) {
    if (lane.receiver.waiting() || lane.sender.room_again()) return true;
    if (lane.sender.settled_again(lane.receiver.consumed())) return true;
  }
  // A peer that makes a torn group whole rings. One that leaves it torn must not keep this end awake.
  return rings_faulty() || (!torn_ && peer_group_changed());
}

void FabricLink::set_armed(std::uint64_t flags) {
  ++armed_sequence_;
  published_core_ = bridge_.core() & kArmedCoreMask;
  bridge_.peer_window().write_word(peer_armed_offset_, armed_sequence_ << kArmedSequenceShift |
                                                           std::uint64_t{published_core_} << kArmedCoreShift | flags);
  armed_ = flags;
}

void FabricLink::ring_if_asleep(RingFor what) {
  const std::uint64_t lines = lines_sent();
  std::uint64_t returns = 0;
  for (const Lane& lane : lanes_) returns += lane.receiver.reported();
  const bool again = what == RingFor::what_waits;
  const bool anything_new = lines != notified_lines_;
  const bool sent = again || anything_new;
  const bool returned = returns != notified_returns_;
  if (!sent && !returned) return;
  if (anything_new) looked_at_ = now_;
  if ((bridge_.core() & kArmedCoreMask) != published_core_) set_armed(0);
  // S1 (full fence): stores the cells before it loads the armed flag; pairs with S2 in prepare_sleep(). Without it both
  // ends could load before either store is visible: the cell waits and the consumer sleeps.
  bridge_.before_doorbell();
  const auto flag = bridge_.local_memory().watch<std::uint64_t>(layout_.armed.offset);
  const bool rings = (flag & kAsleep) != 0 && (flag != rung_for_ || again);
  const bool wants_return = returned && (flag & kWantsReturn) != 0;
  const bool may_wait = what == RingFor::news_not_postponed && lines == postponed_lines_ && !wants_return;
  if (rings && anything_new && may_wait) return;
  notified_lines_ = lines;
  notified_returns_ = returns;
  if (!rings || !(sent || wants_return)) return;
  // A consumer that is about to poll again has armed already. Its poll can find all cells but the older ones.
  if (again && !anything_new && flag != rung_for_ && now_ - looked_at_ >= kLeftOutAge) ++doorbells_left_out_;
  rung_for_ = flag;
  bridge_.ring();
}

void FabricLink::notify() {
  if (up()) ring_if_asleep(RingFor::news);
}

bool FabricLink::peer_sleeps() const {
  if (!up()) return false;
  const auto flag = bridge_.local_memory().watch<std::uint64_t>(layout_.armed.offset);
  return (flag & kAsleep) != 0 && flag != rung_for_;
}

bool FabricLink::prepare_sleep() {
  if (!up()) return true;  // the handshake rings for each of its steps, and its deadline is near
  for (Lane& lane : lanes_) {
    if (lane.receiver.line_behind()) lane.receiver.push_tail(lane.sender.head());
  }
  ring_if_asleep(RingFor::news_not_postponed);
  // Empties the doorbells of the last sleep. Here rather than in disarm(), which would delay the announced cell. One of
  // them may have said that a torn group is whole.
  if (bridge_.take_doorbells()) torn_ = false;
  return arm(wanted_wake_ups());
}

/// An armed flag that says what is wanted is left as it is: whatever comes rings for it. If that doorbell was taken
/// already, the peer would not ring again for this flag.
bool FabricLink::rearm() {
  if (!up() || armed_ == 0) return prepare_sleep();
  ring_if_asleep(RingFor::news);  // it disarms, if this end now runs on another core
  // Who waited for room when this end went to sleep has not tried again.
  const std::uint64_t wanted = wanted_wake_ups() | (armed_ & kWantsReturn);
  return (armed_ == wanted && !doorbell_taken_) || arm(wanted);
}

std::uint64_t FabricLink::wanted_wake_ups() const {
  const bool wants_return = std::ranges::any_of(
      lanes_, [this](const Lane& lane) { return lane.sender.wants_room() || (!patient_ && lane.sender.awaits()); });
  return wants_return ? kAsleep | kWantsReturn : kAsleep;
}

bool FabricLink::arm(std::uint64_t flags) {
  set_armed(flags);
  doorbell_taken_ = false;
  // S2 (full fence, arrived): the armed flag before the second poll; pairs with S1 in ring_if_asleep().
  bridge_.fence();
  if (anything_waiting()) {
    set_armed(0);
    return false;
  }
  undelivered_ = !all_drained();
  return true;
}

void FabricLink::disarm() {
  if (up()) {
    if (armed_ != 0) set_armed(0);
  } else {
    static_cast<void>(bridge_.take_doorbells());
  }
}

void FabricLink::resume(Time now) {
  now_ = now;
  if (!undelivered_) ring_again_next_ = now + kLookAgain;
  disarm();
}

bool FabricLink::peer_waits_for_core(Time now) {
  if (!up()) return false;
  const std::uint32_t core = bridge_.core() & kArmedCoreMask;
  if (core == 0) return false;
  const auto flag = bridge_.local_memory().watch<std::uint64_t>(layout_.armed.offset);
  if (flag != believed_flag_) {
    believed_flag_ = flag;
    believed_since_ = now;
  }
  const bool fresh = now - believed_since_ < kCoreBelieved;
  return fresh && (flag & kAsleep) == 0 && (flag >> kArmedCoreShift & kArmedCoreMask) == core;
}

Time FabricLink::next_deadline(Time now, bool outstanding) const {
  switch (phase_) {
    case LinkPhase::init:
    case LinkPhase::ready:
      return now + kAnnounceAgain;
    case LinkPhase::down:
      return now + kLookAgain;
    case LinkPhase::faulty:
      return kNever;
    case LinkPhase::up:
      // Counts from this end's last look at the flag, not from now, so that other wake-ups do not put it off.
      return outstanding || undelivered_ || torn_ ? std::max(now, ring_again_next_) : kNever;
  }
  return kNever;
}

}  // namespace splitnic::fabric
