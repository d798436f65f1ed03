#include "bench/fabric/yardstick.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "bench/fabric/contents.h"
#include "bench/fabric/measurement.h"
#include "bench/fabric/placement.h"
#include "bench/summary.h"

namespace splitnic::bench {

namespace {

constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::size_t kRoundTripsAtOnce = 64;  // between two looks at the clock

/// Median of the batches' means: one clock reading is as long as the thing measured.
template <class RoundTrip>
Result<double> half_round_trip(Duration length, RoundTrip&& round_trip) {
  std::vector<double> batches;
  Time before = monotonic_now();
  for (const Time end = before + length; before < end || batches.empty();) {
    for (std::size_t i = 0; i < kRoundTripsAtOnce; ++i) {
      if (!round_trip()) return fail("the other process is gone");
    }
    const Time now = monotonic_now();
    batches.push_back(std::chrono::duration<double>(now - before).count() / (2 * kRoundTripsAtOnce));
    before = now;
  }
  return summary_of(std::move(batches)).median;
}

bool exchange_words(int channel, std::uint64_t& word) {
  return ::send(channel, &word, sizeof word, MSG_NOSIGNAL) == sizeof word &&
         ::recv(channel, &word, sizeof word, 0) == sizeof word;
}

double copy_bandwidth(fabric::Bridge& bridge, Duration length) {
  // As the fabric's own messages of this size: two places, used in turn.
  constexpr std::size_t kPlaces = 2;
  const AlignedBytes source(kPlaces * kMaxBytes, std::byte{1});
  const auto copy_for = [&](Duration time) {
    std::size_t copies = 0;
    const Time begin = monotonic_now();
    Time now = begin;
    for (; now - begin < time || copies == 0; now = monotonic_now()) {
      const std::size_t at = copies++ % kPlaces * kMaxBytes;
      bridge.peer_window().write(at, std::span(source).subspan(at, kMaxBytes));
    }
    return static_cast<double>(copies) * kMaxBytes / std::chrono::duration<double>(now - begin).count();
  };
  copy_for(length / kRunUpShare);
  return copy_for(length);
}

}  // namespace

Result<Yardsticks> measure_yardsticks(fabric::Bridge& bridge, int channel, Duration length, bool yield) {
  Yardsticks measured;
  std::uint64_t word = 0;
  const auto line = half_round_trip(length, [&] {
    bridge.peer_window().write_word(0, ++word);
    return await_word(bridge, word, yield);
  });
  if (!line) return tl::unexpected(line.error());
  measured.line = *line;
  bridge.peer_window().write_word(0, kStop);
  const auto socket = half_round_trip(length, [&] { return exchange_words(channel, word); });
  if (!socket) return tl::unexpected(socket.error());
  measured.socket = *socket;
  measured.copy = copy_bandwidth(bridge, length);
  word = kStop;
  if (!exchange_words(channel, word)) return fail("the other process is gone");
  return measured;
}

Result<void> serve_yardsticks(fabric::Bridge& bridge, int channel, bool yield) {
  const fabric::PeerMemory memory = bridge.local_memory();
  for (std::uint64_t answered = 0; answered != kStop;) {
    const auto word = memory.watch<std::uint64_t>(0);
    if (word != answered) {
      bridge.peer_window().write_word(0, word);
      answered = word;
    } else if (yield) {
      std::this_thread::yield();
    }
  }
  for (std::uint64_t word = 0; word != kStop;) {
    if (::recv(channel, &word, sizeof word, 0) != sizeof word) return fail("the other process is gone");
    if (::send(channel, &word, sizeof word, MSG_NOSIGNAL) != sizeof word) return fail("the other process is gone");
  }
  return {};
}

}  // namespace splitnic::bench
