#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fabric/endnode/local_ids.h"
#include "fabric/ids.h"

namespace splitnic::ibverbs {

/// The devices that this process has opened, and their queue pairs. Each of them has a local ID of its own. With
/// hardware they share a port and its address, so programs also address a queue pair of one by the local ID of another.
/// While there are several, they say in the fabric's folder which of them has which queue pair, for programs of other
/// processes. Thread: any.
class OwnDevices {
 public:
  /// A forked child begins with none. Takes no lock, and makes no system call.
  [[nodiscard]] static OwnDevices& of_process();

  /// ids: from which the local ID is taken.
  void opened(std::uint16_t local_id, std::shared_ptr<fabric::LocalIds> ids);
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
  using Place = std::pair<std::uint32_t, std::uint16_t>;  ///< number, local ID

  void note_change() { changes_.fetch_add(1, std::memory_order_release); }
  // Under lock_:
  void tell(const Place& place, bool& told);
  void take_back(const Place& place, bool told);

  std::atomic<std::uint64_t> changes_{1};
  std::mutex lock_;
  std::map<std::uint16_t, std::shared_ptr<fabric::LocalIds>> devices_;
  std::map<Place, bool> queue_pairs_;  // whether others were told
};

}  // namespace splitnic::ibverbs
