// A peer that writes what it likes, when it likes, into the ring that we read and the tail that we are given. Neither
// end may leave its ring, and once faulty it stays so.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "fabric/bridge/message_fifo.h"
#include "fabric/bridge/sim_bridge.h"

using namespace splitnic;
using namespace splitnic::fabric;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kTailAt = 64;
  constexpr std::size_t kRingAt = 128;
  constexpr std::size_t kRingBytes = 1024;
  constexpr std::uint32_t kTag = 0x5eed;
  SeededRandom random(1);
  SimBridgeOptions options;
  options.local_bytes = {2048, 2048};
  options.memory_scribbled = false;
  SimBridgePair pair(options, random);
  const FifoPlace place{kRingAt, kRingBytes, kTailAt};
  FifoSender sender(pair.end(0), place, kTag);
  FifoReceiver receiver(pair.end(1), place, kTag);
  const PeerMemory ring = pair.end(1).local_memory();
  const PeerMemory tail = pair.end(0).local_memory();
  Time now{};

  for (std::size_t i = 0; i + 4 <= size; i += 4) {
    const std::size_t line = data[i + 1] % (kRingBytes / kFifoLine);
    const std::uint64_t value = data[i + 2] | std::uint64_t{data[i + 3]} << 8U;
    switch (data[i] % 6) {
      case 0: {  // a forged head word: lines from the input, a sequence number near those in use
        const std::uint64_t head = (value & 0x80ffU) | (value >> 8U & 0x1fU) << 16U | std::uint64_t{kTag} << 32U;
        ring.store<std::uint64_t>(kRingAt + line * kFifoLine, head);
        break;
      }
      case 1:
        tail.store<std::uint64_t>(kTailAt, (data[i + 1] & 1U) != 0 ? value : ~value);
        break;
      case 2: {
        const std::vector<std::byte> record(1 + value % sender.max_record_bytes(), std::byte{0x5a});
        const bool was_faulty = sender.faulty();
        const bool sent = sender.send({record});
        CHECK(!was_faulty || !sent);
        break;
      }
      case 3:
        for (int taken = 0; taken < 4; ++taken) {
          const bool was_faulty = receiver.faulty();
          const auto record = receiver.front();
          if (!record) break;
          CHECK(!was_faulty);
          CHECK(record->size() % kFifoLine == kFifoLine - kFifoHeadBytes && record->size() < kRingBytes);
          std::vector<std::byte> copy(record->size());
          record->copy_out(0, copy);
          receiver.pop();
        }
        break;
      case 4:
        receiver.push_tail((value & 1U) != 0);
        break;
      default:
        now += std::chrono::microseconds(value % 30);
        pair.advance(now);
    }
  }
  return 0;
}
