// bench-peer-ring: what a send between two processes costs at least, with the checks that a send needs. One slot ring
// and one payload ring for each direction. A slot holds up to 96 bytes; longer messages lie in the payload ring, in
// pieces of at most 64 KiB. The receiver checks queue pair, state, receive and length, places the bytes,
// completes the receive, and moves the tail. The tail is the acknowledgement: it completes the sender's requests.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/peers/harness.h"

namespace splitnic::bench::peers {

namespace {

constexpr std::size_t kSlots = 256;
constexpr std::size_t kInlineBytes = 96;
constexpr std::size_t kPayloadBytes = 2U << 20U;  // as splitnic's: twice a core's own cache
constexpr std::size_t kPieceBytes = 64U << 10U;
constexpr std::size_t kReceives = 128;
constexpr std::size_t kQueuePairs = 16;
constexpr std::uint32_t kQueuePair = 7;

struct alignas(128) Slot {
  std::atomic<std::uint64_t> sequence;  ///< number of the slot since the start, plus 1
  std::uint32_t queue_pair;
  std::uint32_t bytes;  ///< of this piece
  std::uint32_t last;   ///< of the message
  std::uint32_t reserved;
  std::uint64_t payload_at;
  std::array<std::byte, kInlineBytes> data;
};
static_assert(sizeof(Slot) == 128);

/// One direction.
struct Lane {
  std::array<Slot, kSlots> slots;
  std::array<std::byte, kPayloadBytes> payload;
  alignas(64) std::atomic<std::uint64_t> tail;  ///< slots consumed
};

struct QueuePair {
  bool ready = false;
  std::uint64_t receives_posted = 0;
  std::uint64_t receives_consumed = 0;
  std::size_t placed = 0;  ///< bytes of the present message
  std::array<std::byte*, kReceives> receives{};
};

struct Completion {
  std::uint64_t id = 0;
  std::size_t bytes = 0;
};

class Ring final : public Side {
 public:
  Ring(Lane& out, Lane& in) : out_(out), in_(in), source_(kMaxBytes, std::byte{1}), sink_(kReceives * kMaxBytes) {}

  void begin(const Task& task) override {
    task_ = task;
    auto& queue_pair = queue_pairs_[kQueuePair];
    queue_pair = QueuePair{};
    queue_pair.ready = true;
    // No more memory than the caches hold.
    receive_count_ = std::clamp<std::size_t>((1U << 20U) / task.bytes, 2, kReceives);
    for (std::size_t i = 0; i < receive_count_; ++i) post_receive(queue_pair);
    completed_ = 0;
    sent_ = 0;
  }

  std::size_t send(std::uint64_t first, std::size_t count) override {
    complete_requests();
    std::size_t taken = 0;
    for (; taken < count && has_room(); ++taken) {
      const std::uint64_t stamp = first + taken + 1;
      std::memcpy(source_.data(), &stamp, sizeof stamp);
      put_message();
    }
    sent_ += taken;
    return taken;
  }

  std::size_t receive(std::uint64_t next) override {
    deliver();
    for (std::size_t i = 0; i < received_.size(); ++i) {
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, place(received_[i].id), sizeof stamp);
      if (stamp != next + i + 1 || received_[i].bytes != task_.bytes) throw std::runtime_error("another message came");
      post_receive(queue_pairs_[kQueuePair]);
    }
    const std::size_t count = received_.size();
    received_.clear();
    return count;
  }

  bool flush() override {
    complete_requests();
    return completed_ == sent_;
  }

 private:
  std::byte* place(std::uint64_t receive) { return sink_.data() + receive % receive_count_ * task_.bytes; }

  void post_receive(QueuePair& queue_pair) {
    queue_pair.receives[queue_pair.receives_posted % kReceives] = place(queue_pair.receives_posted);
    ++queue_pair.receives_posted;
  }

  [[nodiscard]] std::size_t pieces() const { return (task_.bytes + kPieceBytes - 1) / kPieceBytes; }
  [[nodiscard]] bool has_room() const {
    const std::size_t payload = task_.bytes <= kInlineBytes ? 0 : (task_.bytes + 63U) / 64 * 64 + kPieceBytes;
    return head_ - tail_ + pieces() <= kSlots && payload_head_ - payload_tail_ + payload <= kPayloadBytes;
  }

  void put_message() {
    for (std::size_t at = 0; at < task_.bytes; at += kPieceBytes) {
      const std::size_t bytes = std::min(task_.bytes - at, kPieceBytes);
      Slot& slot = out_.slots[head_ % kSlots];
      slot.queue_pair = kQueuePair;
      slot.bytes = static_cast<std::uint32_t>(bytes);
      slot.last = at + bytes == task_.bytes ? 1 : 0;
      if (bytes <= kInlineBytes) {
        std::memcpy(slot.data.data(), source_.data() + at, bytes);
      } else {
        // A piece does not wrap.
        const std::size_t offset = payload_head_ % kPayloadBytes;
        if (offset + bytes > kPayloadBytes) payload_head_ += kPayloadBytes - offset;
        slot.payload_at = payload_head_ % kPayloadBytes;
        std::memcpy(out_.payload.data() + slot.payload_at, source_.data() + at, bytes);
        payload_head_ += (bytes + 63U) / 64 * 64;
      }
      freed_payload_[head_ % kSlots] = payload_head_;
      ends_request_[head_ % kSlots] = slot.last != 0;
      ++head_;
      // Pairs with the acquire in deliver(): the slot and its payload before its sequence.
      slot.sequence.store(head_, std::memory_order_release);
    }
  }

  void complete_requests() {
    const std::uint64_t tail = out_.tail.load(std::memory_order_acquire);
    for (; tail_ < tail; ++tail_) {
      payload_tail_ = freed_payload_[tail_ % kSlots];
      if (ends_request_[tail_ % kSlots]) completions_[completed_++ % kSlots] = {completed_, task_.bytes};
    }
  }

  void deliver() {
    const std::uint64_t before = next_;
    for (std::size_t budget = std::min<std::size_t>(32, receive_count_); budget > 0; --budget) {
      const Slot& slot = in_.slots[next_ % kSlots];
      if (slot.sequence.load(std::memory_order_acquire) != next_ + 1) break;
      place_piece(slot);
      ++next_;
    }
    if (next_ != before) in_.tail.store(next_, std::memory_order_release);
  }

  void place_piece(const Slot& slot) {
    const std::uint32_t number = slot.queue_pair;
    const std::size_t bytes = slot.bytes;
    if (number >= kQueuePairs || !queue_pairs_[number].ready) throw std::runtime_error("no such queue pair");
    QueuePair& queue_pair = queue_pairs_[number];
    if (queue_pair.receives_consumed == queue_pair.receives_posted) throw std::runtime_error("no receive");
    if (bytes > kPieceBytes || queue_pair.placed + bytes > task_.bytes) throw std::runtime_error("too long");
    std::byte* to = queue_pair.receives[queue_pair.receives_consumed % kReceives] + queue_pair.placed;
    if (bytes <= kInlineBytes) {
      std::memcpy(to, slot.data.data(), bytes);
    } else {
      const std::uint64_t from = slot.payload_at;
      if (from > kPayloadBytes - bytes) throw std::runtime_error("outside of the payload ring");
      std::memcpy(to, in_.payload.data() + from, bytes);
    }
    queue_pair.placed += bytes;
    if (slot.last == 0) return;
    received_.push_back({queue_pair.receives_consumed++, queue_pair.placed});
    queue_pair.placed = 0;
  }

  Lane& out_;
  Lane& in_;
  Task task_;
  std::vector<std::byte> source_;
  std::vector<std::byte> sink_;
  std::size_t receive_count_ = kReceives;
  std::array<QueuePair, kQueuePairs> queue_pairs_{};
  std::vector<Completion> received_;
  std::array<Completion, kSlots> completions_{};
  std::array<std::uint64_t, kSlots> freed_payload_{};
  std::array<bool, kSlots> ends_request_{};
  std::uint64_t head_ = 0, tail_ = 0, next_ = 0;
  std::uint64_t payload_head_ = 0, payload_tail_ = 0;
  std::uint64_t sent_ = 0, completed_ = 0;
};

}  // namespace

}  // namespace splitnic::bench::peers

int main(int argc, char** argv) {
  using namespace splitnic::bench::peers;
  auto* lanes = static_cast<Lane*>(shared_memory(2 * sizeof(Lane)));
  return run(argc, argv, {"bench-peer-ring", {"send"}, [lanes](Role role, int) -> std::unique_ptr<Side> {
                            const bool client = role == Role::client;
                            return std::make_unique<Ring>(lanes[client ? 0 : 1], lanes[client ? 1 : 0]);
                          }});
}
