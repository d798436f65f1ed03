#include "tests/hostile/hostile_host.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/os/passed_descriptors.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_setup.h"
#include "fabric/wire/slot_cell.h"
#include "tests/hostile/arena.h"

namespace splitnic::fabric::hostile {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A bridge that changes this end's memory between two steps of the handshake, once meddle() is set.
class FalseBridge final : public Bridge {
 public:
  using Meddle = void (*)(std::span<std::byte>, SeededRandom&);
  FalseBridge(std::unique_ptr<Bridge> real, std::span<std::byte> own_memory, SeededRandom& random)
      : real_(std::move(real)), own_memory_(own_memory), random_(random) {}

  void meddle(Meddle with) { meddle_ = with; }
  PeerMemory local_memory() override { return real_->local_memory(); }
  PeerWindow& peer_window() override { return real_->peer_window(); }
  std::uint32_t read_scratchpad(std::size_t index) override { return real_->read_scratchpad(index); }
  void write_scratchpad(std::size_t index, std::uint32_t value) override { real_->write_scratchpad(index, value); }
  void publish() override {
    if (meddle_ != nullptr) meddle_(own_memory_.first(kAnchorBytes), random_);
    real_->publish();
  }
  void fence() override { real_->fence(); }
  void before_doorbell() override { real_->before_doorbell(); }
  void flush() override { real_->flush(); }
  void ring() override { real_->ring(); }
  bool take_doorbells() override { return real_->take_doorbells(); }
  int doorbell_descriptor() const override { return real_->doorbell_descriptor(); }
  LinkState link() override { return real_->link(); }

 private:
  std::unique_ptr<Bridge> real_;
  std::span<std::byte> own_memory_;
  SeededRandom& random_;
  Meddle meddle_ = nullptr;
};

os::UniqueFd call(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  SPLITNIC_CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  os::UniqueFd caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SPLITNIC_CHECK(connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const ShmHello hello = encode_shm_hello({.local_bytes = kShmMinBytes, .window_bytes = kShmMinBytes});
  SPLITNIC_CHECK(send(caller.get(), &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello));
  return caller;
}

/// The descriptors in the reply: memfd of the local memory, memfd of the window, doorbell to hear, doorbell to ring.
std::array<os::UniqueFd, kShmSetupDescriptors> answer_to(const os::UniqueFd& caller) {
  ShmReply reply{};
  auto received =
      os::receive_with_descriptors(caller.get(), std::as_writable_bytes(std::span(&reply, 1)), kShmSetupDescriptors, 0);
  auto& got = received.descriptors;
  SPLITNIC_CHECK(received.bytes == static_cast<ssize_t>(sizeof reply) && got.size() == kShmSetupDescriptors);
  return {std::move(got[0]), std::move(got[1]), std::move(got[2]), std::move(got[3])};
}

std::span<std::byte> map_all(int descriptor) {
  struct stat status {};
  SPLITNIC_CHECK(fstat(descriptor, &status) == 0);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  SPLITNIC_CHECK(memory != MAP_FAILED);
  return {static_cast<std::byte*>(memory), bytes};
}

Anchor anchor_at(std::span<const std::byte> memory) {
  AnchorBytes bytes{};
  std::memcpy(&bytes, memory.data(), sizeof bytes);
  const auto anchor = decode_anchor(bytes, 0, memory.size());
  SPLITNIC_CHECK(anchor.has_value());
  return *anchor;
}

std::uint64_t word_at(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}

}  // namespace

bool RawSlots::wait_until_free(std::size_t lines) const {
  const Time give_up = monotonic_now() + milliseconds(50);
  while (head_ - word_at(tail_ + kTailAt) + lines > slots_.size() / kSlotLine) {
    if (monotonic_now() > give_up) return false;
    sched_yield();
  }
  return true;
}

RawSlots::Place RawSlots::put(const SlotHeader& header, std::span<const std::byte> body, bool second_line) {
  const bool two_lines = (header.shape.value() & slot_shape::kTwoLines) != 0;
  if (!wait_until_free(two_lines ? 2 : 1)) return {};
  const std::span<std::byte> first = line(head_);
  const std::size_t in_first = std::min(body.size(), kSlotBodyInFirst);
  SlotHeader whole = header;
  whole.settled = static_cast<std::uint32_t>(word_at(opposite_ + kTailSettledAt));
  std::memcpy(&first[kSlotSequenceBytes], &whole, sizeof whole);
  std::ranges::copy(body.first(in_first), first.subspan(kSlotBodyAt).begin());
  if (two_lines) {
    const std::span<std::byte> second = line(head_ + 1);
    const std::uint32_t sequence = line_sequence(seed_, head_ + 1) + (second_line ? 0U : 1U);
    std::memcpy(second.data(), &sequence, sizeof sequence);
    std::ranges::copy(body.subspan(in_first), second.subspan(kSlotSequenceBytes).begin());
  }
  put_sequence(0);
  head_ += two_lines ? 2 : 1;
  return {first, {}};
}

RawSlots::Place RawSlots::put(const Cell& cell, std::span<const std::byte> payload) {
  std::array<std::byte, kSlotBodyInBoth> body{};
  const std::size_t extension = slot_extension_bytes(cell.opcode);
  encode_slot_extension(cell, body.data());
  const SlotLayout layout = slot_layout(extension, payload.size());
  SlotHeader header;
  encode_slot(slot_fields(cell), layout, std::as_writable_bytes(std::span(&header, 1)).data());
  if (!layout.in_payload_ring) {
    std::ranges::copy(payload, &body[extension]);
    return put(header, std::span(body).first(extension + payload.size()));
  }
  // Beside the payloads before it, for as long as the ring lasts; then over them, consumed or not.
  if (payload_.size() - payload_at_ < payload.size()) payload_at_ = 0;
  const std::span<std::byte> at = payload_.subspan(payload_at_, payload.size());
  std::ranges::copy(payload, at.begin());
  SlotHeader whole = header;
  whole.payload_at = static_cast<std::uint32_t>(payload_at_ / kSlotLine);
  payload_at_ += (payload.size() + kSlotLine - 1) / kSlotLine * kSlotLine;
  Place place = put(whole, std::span(body).first(extension));
  place.payload = at;
  return place;
}

void RawSlots::put_sequence(std::uint32_t off) {
  const std::uint32_t sequence = line_sequence(seed_, head_) + off;
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(line(head_).data()), sequence, __ATOMIC_RELEASE);
}

HostileHost::HostileHost(const std::string& path, Board& board, std::uint64_t seed) : board_(board), random_(seed) {
  const os::UniqueFd caller = call(path);
  auto [own, theirs, bell, bell_to_ring] = answer_to(caller);
  mine_ = map_all(own.get());
  theirs_ = map_all(theirs.get());
  their_descriptor_ = os::UniqueFd(dup(theirs.get()));
  event_ = os::UniqueFd(dup(bell_to_ring.get()));
  std::shared_ptr<const ShmMemory> own_memory = ShmMemory::adopt(std::move(own), kShmMinBytes).value();
  std::shared_ptr<const ShmMemory> window = ShmMemory::adopt(std::move(theirs), kShmMinBytes).value();
  auto doorbell = std::make_unique<HostDoorbell>(std::move(bell), std::move(bell_to_ring), HostDoorbell::Options{});
  auto real = std::make_unique<ShmBridge>(ShmParts{std::move(own_memory), std::move(window), std::move(doorbell)});
  bridge_ = std::make_unique<FalseBridge>(std::move(real), this->own_memory(), random_);
}

void HostileHost::set_up() {
  LinkOptions options;
  options.port_address = kHostilePort;
  link_ = std::make_unique<FabricLink>(*bridge_, options, random_);
  link_->restart();
  const auto wait_until = [this](auto condition) {
    const Time give_up = monotonic_now() + seconds(20);
    while (!condition()) {
      SPLITNIC_CHECK(monotonic_now() < give_up);
      link_->poll(monotonic_now());
      pollfd bell{bridge_->doorbell_descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&bell, 1, 1));
    }
  };
  wait_until([this] { return link_->up(); });
  layout_ = anchor_at(window());
  own_layout_ = anchor_at(own_memory());
  std::ranges::copy(own_memory().first(kAnchorBytes), own_anchor_.begin());
  const std::uint32_t tag = epoch_tag(link_->epoch(), link_->peer_epoch());
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    slots_[lane] = RawSlots(part(layout_.slots[lane]), part(layout_.payloads[lane]),
                            &own_memory()[own_layout_.tails[lane].offset], part(layout_.tails[lane]).data(), tag);
  }
  board_.number = kNumber;
  board_.stage.store(Stage::linked);
  wait_until([this] { return board_.stage.load() == Stage::attacking; });
  until_ = monotonic_now() + kAttackFor;
}

void HostileHost::look_around() {
  ring();
  const Time until = monotonic_now() + milliseconds(20);
  do {
    if (link_->up()) static_cast<void>(take());
    sched_yield();
  } while (monotonic_now() < until);
  const std::span<const std::byte> memory = own_memory();
  for (std::size_t at = 0; at + sizeof Arena::kSecret <= memory.size(); ++at) {
    std::uint64_t word = 0;
    std::memcpy(&word, &memory[at], sizeof word);
    board_.secret_seen = board_.secret_seen || word == Arena::kSecret;
  }
  board_.own_memory_spoilt = !std::ranges::equal(memory.first(kAnchorBytes), own_anchor_);
}

void HostileHost::handshake_again(void (*before)(std::span<std::byte> anchor, SeededRandom& random)) {
  static_cast<FalseBridge&>(*bridge_).meddle(before);
  link_->restart();
  const Time give_up = monotonic_now() + milliseconds(300);
  while (monotonic_now() < give_up && link_->phase() != LinkPhase::up) {
    link_->poll(monotonic_now());
    sched_yield();
  }
  std::ranges::copy(own_memory().first(kAnchorBytes), own_anchor_.begin());
}

Cell HostileHost::cell(Opcode opcode) {
  Cell made;
  made.opcode = opcode;
  made.destination_queue_pair = owner().queue_pair;
  made.packet_sequence = psn++;
  return made;
}

Cell HostileHost::cell(Opcode opcode, const Grant& grant, std::int64_t offset, std::uint32_t bytes) {
  Cell made = cell(opcode);
  made.tag = grant.tag;
  made.address = grant.address + static_cast<std::uint64_t>(offset);
  made.message_bytes = bytes;
  const MessageKind kind = traits(opcode).kind;
  if (kind == MessageKind::read_request || kind == MessageKind::atomic) made.message_sequence = ++message_sequence;
  return made;
}

std::vector<std::byte> HostileHost::head_of(const Cell& cell) {
  std::array<std::byte, kMaxCellHeadBytes> head{};
  const std::size_t bytes = encode_cell_head(cell, 0, head);
  return {head.begin(), head.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

bool HostileHost::put(const Cell& cell, std::span<const std::byte> payload, VirtualLane lane) {
  const bool written = !slots(lane).put(cell, payload).line.empty();
  if (!written || puts_++ % 8 == 0) ring();
  return written;
}

std::vector<std::byte> HostileHost::random_bytes(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (auto& byte : made) byte = static_cast<std::byte>(random_.next());
  return made;
}

void HostileHost::note(const Cell& cell) {
  if (cell.opcode != Opcode::terminate) return;
  board_.told = cell.reason;
  ++board_.times_told;
}

std::vector<Cell> HostileHost::take() {
  std::vector<Cell> cells;
  for (const VirtualLane lane : {VirtualLane::control, VirtualLane::data}) {
    while (const ReceivedCell* front = link_->front(lane)) {
      SPLITNIC_CHECK(!front->fault);
      cells.push_back(front->cell);
      note(front->cell);
      link_->pop(lane);
    }
    link_->return_room(lane, true);
  }
  return cells;
}

bool HostileHost::wait_for(Opcode opcode) {
  ring();
  const Time give_up = monotonic_now() + seconds(1);
  while (monotonic_now() < give_up) {
    const std::vector<Cell> cells = take();
    if (std::ranges::any_of(cells, [opcode](const Cell& cell) { return cell.opcode == opcode; })) return true;
    sched_yield();
  }
  return false;
}

}  // namespace splitnic::fabric::hostile
