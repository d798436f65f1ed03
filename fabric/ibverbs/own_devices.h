#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "fabric/ids.h"

namespace splitnic::ibverbs {

/// The devices that this process has opened, and their queue pairs. Each of them has a local ID of its own. With
/// hardware they share a port and its address, so programs also address a queue pair of one by the local ID of another.
/// Thread: any.
class OwnDevices {
 public:
  /// A forked child begins with none. Takes no lock, and makes no system call.
  [[nodiscard]] static OwnDevices& of_process();

  void opened(std::uint16_t local_id);
  /// Also of its queue pairs nothing is known any more.
  void closed(std::uint16_t local_id);
  void created(std::uint16_t local_id, fabric::QpNumber number);
  void destroyed(std::uint16_t local_id, fabric::QpNumber number);

  [[nodiscard]] bool has(std::uint16_t local_id);
  /// The local ID of the device that has the queue pair which a program calls `number` at `local_id`: `local_id`
  /// itself, unless only another device of this process has it.
  [[nodiscard]] std::uint16_t holder(std::uint16_t local_id, fabric::QpNumber number);
  /// How often devices and queue pairs have come or gone: as long as it stays the same, so does holder(). Takes no
  /// lock.
  [[nodiscard]] std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  void note_change() { changes_.fetch_add(1, std::memory_order_release); }

  std::atomic<std::uint64_t> changes_{1};
  std::mutex lock_;
  std::set<std::uint16_t> devices_;
  std::set<std::pair<std::uint32_t, std::uint16_t>> queue_pairs_;  // number, local ID
};

}  // namespace splitnic::ibverbs
