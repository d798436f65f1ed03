#include "frame_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace splitnic::sim {

namespace {

constexpr std::uint16_t kEtherType = 0x88b5;  // IEEE 802 local experimental

void put16(std::byte* to, std::uint32_t value) {
  to[0] = static_cast<std::byte>(value >> 8U & 0xffU);
  to[1] = static_cast<std::byte>(value & 0xffU);
}

std::uint64_t pattern(std::uint32_t number, std::size_t word) {
  std::uint64_t value = (std::uint64_t{number} << 32U | word) * 0x9e3779b97f4a7c15U;
  value ^= value >> 31U;
  return value * 0xbf58476d1ce4e5b9U;
}

std::uint32_t number_in(std::span<const std::byte> frame) {
  if (frame.size() < FrameBook::min_bytes(0)) return ~std::uint32_t{0};
  const bool tagged = frame[12] == std::byte{0x81} && frame[13] == std::byte{0};
  if (frame.size() < FrameBook::min_bytes(tagged ? 1 : 0)) return ~std::uint32_t{0};
  std::uint32_t number = 0;
  std::memcpy(&number, frame.data() + FrameBook::header_bytes(tagged ? 1 : 0), sizeof number);
  return number;
}

}  // namespace

std::string receivers_text(Receivers receivers) {
  std::string text;
  for (std::size_t receiver = 0; receiver < kReceivers; ++receiver) {
    if ((receivers & receiver_bit(receiver)) == 0) continue;
    if (!text.empty()) text += ", ";
    text += receiver == kLan ? "LAN" : fmt::format("host{}", receiver);
  }
  return text.empty() ? "nobody" : text;
}

std::uint32_t FrameBook::add(const SentFrame& frame) {
  frames_.push_back(frame);
  missing_ += static_cast<std::size_t>(std::popcount(frame.expected));
  const auto number = static_cast<std::uint32_t>(frames_.size() - 1);
  trace_.event(frame.sent, frame.judged ? "judged frame, sender" : "frame, sender", number, frame.sender);
  return number;
}

void FrameBook::write(std::uint32_t number, std::span<std::byte> to) {
  const SentFrame& frame = frames_[number];
  scratch_.resize((frame.bytes + 7) / 8 * 8);
  for (std::size_t word = 0; word < scratch_.size() / 8; ++word) {
    const std::uint64_t value = pattern(number, word);
    std::memcpy(scratch_.data() + word * 8, &value, sizeof value);
  }
  std::byte* at = scratch_.data();
  std::memcpy(at, frame.destination.octets.data(), 6);
  std::memcpy(at + 6, frame.source.octets.data(), 6);
  at += 12;
  if (frame.vlan != 0) {
    put16(at, 0x8100);
    put16(at + 2, frame.vlan);
    at += 4;
  }
  put16(at, kEtherType);
  std::memcpy(at + 2, &number, sizeof number);
  std::memcpy(to.data(), scratch_.data(), to.size());
}

/// Whether one end of the frame's way has several queues.
bool FrameBook::by_flow(const SentFrame& frame, std::size_t receiver) const {
  const Receivers ends = receiver_bit(receiver) | (frame.sender < kMaxHosts ? receiver_bit(frame.sender) : 0);
  return (several_queues_ & ends) != 0;
}

/// The lowest number that may still come this way.
std::uint32_t& FrameBook::next_number(const SentFrame& frame, std::size_t receiver) {
  if (!by_flow(frame, receiver)) return next_[frame.sender][receiver];
  return next_of_flow_[{frame.sender, receiver, frame.source.as_number(), frame.destination.as_number()}];
}

const SentFrame* FrameBook::arrived(std::size_t receiver, std::span<const std::byte> bytes, Time now) {
  const std::string who = receivers_text(receiver_bit(receiver));
  const auto verdict = [&](std::uint32_t number, std::string_view what) -> const SentFrame* {
    verdicts_.violate(now, fmt::format("frame {} at {}: {}", number, who, what));
    return nullptr;
  };
  const std::uint32_t number = number_in(bytes);
  trace_.event(now, "arrived at", number, receiver);
  if (number >= frames_.size()) return verdict(number, "bytes differ: nobody sent this");
  SentFrame& frame = frames_[number];
  if (bytes.size() != frame.bytes) {
    return verdict(number, fmt::format("bytes differ: {} came, {} were sent", bytes.size(), frame.bytes));
  }
  std::vector<std::byte> original(frame.bytes);
  write(number, original);
  if (!std::ranges::equal(original, bytes)) return verdict(number, "bytes differ from those sent");
  if ((frame.received & receiver_bit(receiver)) != 0) return verdict(number, "arrived twice");
  std::uint32_t& next = next_number(frame, receiver);
  if (number < next && (frame.judged || !by_flow(frame, receiver))) return verdict(number, "out of order");
  if (frame.forbidden) return verdict(number, "not for this receiver: its source address is forged");
  if (frame.sender == receiver || (receiver == kLan && frame.sender > kLan - 1)) {
    return verdict(number, "not for this receiver: it is the sender");
  }
  if (frame.judged && (frame.expected & receiver_bit(receiver)) == 0) {
    return verdict(number, fmt::format("not for this receiver: for {}", receivers_text(frame.expected)));
  }
  next = std::max(next, number + 1);
  frame.received |= receiver_bit(receiver);
  if (frame.judged) --missing_;
  ++deliveries_;
  return &frame;
}

std::string FrameBook::first_missing() const {
  for (std::uint32_t number = 0; number < frames_.size(); ++number) {
    const SentFrame& frame = frames_[number];
    if (!frame.judged || frame.received == frame.expected) continue;
    return fmt::format("frame {} ({} bytes, sender {}, to {}, sent at {}) did not arrive at {}", number, frame.bytes,
                       frame.sender, to_string(frame.destination), to_text(frame.sent),
                       receivers_text(frame.expected & ~frame.received));
  }
  return "none";
}

}  // namespace splitnic::sim
