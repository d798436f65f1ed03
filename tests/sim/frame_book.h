#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "common/mac_address.h"
#include "common/time.h"
#include "scenario.h"
#include "trace.h"

namespace splitnic::sim {

/// Who can receive: hosts 0 .. 3, and the LAN as one. Who can send: the hosts, and each station of the LAN.
inline constexpr std::size_t kLan = kMaxHosts;
inline constexpr std::size_t kReceivers = kMaxHosts + 1;
inline constexpr std::size_t kSenders = kMaxHosts + kLanStations;
constexpr std::size_t lan_sender(std::size_t station) { return kMaxHosts + station; }

/// A set of receivers, a bit each.
using Receivers = std::uint32_t;
constexpr Receivers receiver_bit(std::size_t receiver) { return Receivers{1} << receiver; }
std::string receivers_text(Receivers receivers);

struct SentFrame {
  std::size_t sender = 0;
  MacAddress destination;
  MacAddress source;
  std::uint16_t vlan = 0;  ///< 0: untagged
  std::uint32_t bytes = 0;
  Time sent{};
  bool forbidden = false;  ///< must reach nobody: its source is no address, or not the sender's to use
  bool judged = false;     ///< sent after the heal: exactly `expected` shall receive it, in time
  Receivers expected = 0;
  Receivers received = 0;
};

/// Every frame that was ever sent. A frame carries its number here; all its other bytes follow from it, so that a
/// receiver's copy can be held against the original. Draws the safety verdicts that need no knowledge of filters:
/// nothing invented, changed, duplicated or reordered, nothing of a forged source.
class FrameBook {
 public:
  FrameBook(Trace& trace, Verdicts& verdicts) : trace_(trace), verdicts_(verdicts) {}

  static std::uint32_t header_bytes(std::uint16_t vlan) { return vlan == 0 ? 14 : 18; }
  static std::uint32_t min_bytes(std::uint16_t vlan) { return header_bytes(vlan) + 4; }

  /// The host has further queues. Frames of different flows may then overtake each other on the way from it and to it,
  /// and those of one flow while queues come and go: only the order of judged frames is promised.
  void has_queues(std::size_t host) { several_queues_ |= receiver_bit(host); }
  /// Returns the frame's number.
  std::uint32_t add(const SentFrame& frame);
  [[nodiscard]] const SentFrame& at(std::uint32_t number) const { return frames_[number]; }
  [[nodiscard]] std::size_t size() const { return frames_.size(); }
  /// Writes the frame's bytes; `to` is exactly as long and is never read.
  void write(std::uint32_t number, std::span<std::byte> to);
  /// A receiver has got these bytes. The frame's entry, or null where a verdict has been drawn.
  const SentFrame* arrived(std::size_t receiver, std::span<const std::byte> bytes, Time now);

  /// Judged frames that some receiver still waits for.
  [[nodiscard]] std::size_t missing() const { return missing_; }
  /// For the report, when they stay missing.
  [[nodiscard]] std::string first_missing() const;
  [[nodiscard]] std::uint64_t deliveries() const { return deliveries_; }

 private:
  Trace& trace_;
  Verdicts& verdicts_;
  std::vector<SentFrame> frames_;
  std::vector<std::byte> scratch_;
  [[nodiscard]] bool by_flow(const SentFrame& frame, std::size_t receiver) const;
  [[nodiscard]] std::uint32_t& next_number(const SentFrame& frame, std::size_t receiver);
  std::array<std::array<std::uint32_t, kReceivers>, kSenders> next_{};  // lowest number that may still come
  Receivers several_queues_ = 0;
  /// The same for flows between ends of which one has several queues: sender, receiver, source, destination.
  std::map<std::tuple<std::size_t, std::size_t, std::uint64_t, std::uint64_t>, std::uint32_t> next_of_flow_;
  std::size_t missing_ = 0;
  std::uint64_t deliveries_ = 0;
};

}  // namespace splitnic::sim
