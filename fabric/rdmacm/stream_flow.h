#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace splitnic::rdmacm {

/// What one end of a stream may send: bytes into the ring of the other end, and messages, each of which takes one of
/// the receives there. Offsets only grow; the kernel of the rule is that the other end never has to refuse anything.
/// Thread: the holder of the socket's lock.
class SendCredits {
 public:
  /// Messages that bytes never take, so that credits, an end and maps can always be sent: at most 4 credits by bytes
  /// and 2 by messages are under way before the other end has to take them, because nothing new arrives until then.
  static constexpr std::uint32_t kReserved = 12;

  SendCredits() = default;
  /// ring_bytes, messages: what the other end has.
  SendCredits(std::uint32_t ring_bytes, std::uint32_t messages) : ring_bytes_(ring_bytes), messages_(messages) {}

  /// How many bytes the next write may have, in one piece.
  [[nodiscard]] std::size_t room() const;
  /// Where in the ring the next write begins.
  [[nodiscard]] std::size_t place() const { return static_cast<std::size_t>(sent_bytes_ % ring_bytes_); }
  [[nodiscard]] bool may_send_control() const { return sent_messages_ - consumed_messages_ < messages_; }
  void sent_bytes(std::size_t bytes);
  void sent_control() { ++sent_messages_; }
  /// What the other end says that it has consumed since the beginning. false: more than was sent, or less than before.
  [[nodiscard]] bool consumed(std::uint64_t bytes, std::uint64_t messages);
  /// Everything that was sent is consumed.
  [[nodiscard]] bool all_consumed() const { return consumed_bytes_ == sent_bytes_; }

 private:
  std::uint32_t ring_bytes_ = 1;
  std::uint32_t messages_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t consumed_bytes_ = 0;
  std::uint64_t sent_messages_ = 0;
  std::uint64_t consumed_messages_ = 0;
};

/// What has arrived in this end's ring and is not consumed, and what the other end has not been told yet. The other end
/// writes the ring's bytes, and may be hostile: only their number is kept here. Thread: as SendCredits.
class ReceiveRing {
 public:
  ReceiveRing() = default;
  /// ring: stays where it is as long as this object.
  ReceiveRing(std::span<std::byte> ring, std::uint32_t messages) : ring_(ring), messages_(messages) {}

  /// So many bytes were written behind the earlier ones. false: they had no room there, or go beyond the ring's end.
  [[nodiscard]] bool arrived(std::uint64_t bytes);
  [[nodiscard]] std::size_t waiting() const { return static_cast<std::size_t>(arrived_ - consumed_); }
  /// Copies the oldest bytes that wait, behind the first `skipped` ones. Returns how many.
  std::size_t copy_to(std::span<std::byte> to, std::size_t skipped = 0) const;
  void consume(std::size_t bytes) { consumed_ += bytes; }
  /// Receives were posted again.
  void posted_again(std::size_t messages) { posted_ += messages; }

  /// The other end may soon have to wait, so it should get credits.
  [[nodiscard]] bool credits_due() const;
  [[nodiscard]] std::uint64_t consumed() const { return consumed_; }
  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  /// A control message with the present state was sent.
  void told();

 private:
  std::span<std::byte> ring_;
  std::uint32_t messages_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t told_consumed_ = 0;
  std::uint64_t told_posted_ = 0;
};

}  // namespace splitnic::rdmacm
