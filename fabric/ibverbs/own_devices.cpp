#include "fabric/ibverbs/own_devices.h"

#include "fabric/threads/per_process.h"

namespace splitnic::ibverbs {

OwnDevices& OwnDevices::of_process() {
  static constinit fabric::PerProcess<OwnDevices> devices;
  return devices.get();
}

void OwnDevices::opened(std::uint16_t local_id) {
  const std::lock_guard guard(lock_);
  devices_.insert(local_id);
  note_change();
}

void OwnDevices::closed(std::uint16_t local_id) {
  const std::lock_guard guard(lock_);
  devices_.erase(local_id);
  std::erase_if(queue_pairs_, [local_id](const auto& one) { return one.second == local_id; });
  note_change();
}

void OwnDevices::created(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  queue_pairs_.emplace(number.value, local_id);
  note_change();
}

void OwnDevices::destroyed(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  queue_pairs_.erase({number.value, local_id});
  note_change();
}

bool OwnDevices::has(std::uint16_t local_id) {
  const std::lock_guard guard(lock_);
  return devices_.contains(local_id);
}

std::uint16_t OwnDevices::holder(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  if (!devices_.contains(local_id) || queue_pairs_.contains({number.value, local_id})) return local_id;
  const auto other = queue_pairs_.lower_bound({number.value, 0});
  return other != queue_pairs_.end() && other->first == number.value ? other->second : local_id;
}

}  // namespace splitnic::ibverbs
