#include "fabric/ibverbs/own_devices.h"

#include "fabric/threads/per_process.h"

namespace splitnic::ibverbs {

OwnDevices& OwnDevices::of_process() {
  static constinit fabric::PerProcess<OwnDevices> devices;
  return devices.get();
}

void OwnDevices::opened(std::uint16_t local_id, std::shared_ptr<fabric::LocalIds> ids) {
  const std::lock_guard guard(lock_);
  devices_.emplace(local_id, std::move(ids));
  if (devices_.size() > 1) {
    for (auto& [place, told] : queue_pairs_) tell(place, told);
  }
  note_change();
}

void OwnDevices::closed(std::uint16_t local_id) {
  const std::lock_guard guard(lock_);
  std::erase_if(queue_pairs_, [&](const auto& one) {
    if (one.first.second != local_id) return false;
    take_back(one.first, one.second);
    return true;
  });
  devices_.erase(local_id);
  note_change();
}

void OwnDevices::created(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  const auto made = queue_pairs_.emplace(Place{number.value, local_id}, false).first;
  if (devices_.size() > 1) tell(made->first, made->second);
  note_change();
}

void OwnDevices::destroyed(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  const auto gone = queue_pairs_.extract(Place{number.value, local_id});
  if (!gone.empty()) take_back(gone.key(), gone.mapped());
  note_change();
}

void OwnDevices::tell(const Place& place, bool& told) {
  if (!std::exchange(told, true))
    devices_.at(place.second)->place(fabric::QpNumber{place.first}, fabric::LocalId{place.second});
}

void OwnDevices::take_back(const Place& place, bool told) {
  if (told) devices_.at(place.second)->displace(fabric::QpNumber{place.first}, fabric::LocalId{place.second});
}

bool OwnDevices::has(std::uint16_t local_id) {
  const std::lock_guard guard(lock_);
  return devices_.contains(local_id);
}

std::uint16_t OwnDevices::holder(std::uint16_t local_id, fabric::QpNumber number) {
  const std::lock_guard guard(lock_);
  if (!devices_.contains(local_id) || queue_pairs_.contains({number.value, local_id})) return local_id;
  const auto other = queue_pairs_.lower_bound({number.value, 0});
  const bool found = other != queue_pairs_.end() && other->first.first == number.value;
  return found ? other->first.second : local_id;
}

}  // namespace splitnic::ibverbs
