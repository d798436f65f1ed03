#include "host/in_process_nic.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/frame/ethernet.h"
#include "common/os/errno_text.h"
#include "common/result.h"

namespace splitnic::host {
namespace {

constexpr std::uint32_t kLeastMtu = 68;  // RFC 791
constexpr std::uint32_t kHeaderAndTags = frame::kEthernetHeaderBytes + 2 * frame::kVlanTagBytes;

}  // namespace

InProcessNic::InProcessNic(const InProcessNicOptions& options)
    : to_driver_(options.frames, options.frame_bytes),
      to_application_(options.frames, options.frame_bytes),
      longest_frame_(options.mtu + kHeaderAndTags),
      changed_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!changed_) throw StartupError{fmt::format("no descriptor for the nic: {}", os::errno_text())};
  wanted_.mac = options.mac;
  wanted_.mtu = options.mtu;
  address_set_ = !options.mac.is_zero();
}

template <class Change>
void InProcessNic::change(Change&& change) {
  const std::lock_guard lock(mutex_);
  std::forward<Change>(change)(wanted_);
  longest_frame_.store(wanted_.mtu + kHeaderAndTags, std::memory_order_relaxed);
  up_.store(wanted_.up, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_relaxed);
  ::eventfd_write(changed_.get(), 1);
}

bool InProcessNic::send(std::span<const std::byte> frame) {
  if (!up_.load(std::memory_order_relaxed) || frame.size() < frame::kEthernetHeaderBytes ||
      frame.size() > longest_frame_.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::span<std::byte> place = to_driver_.claim();
  if (place.size() < frame.size()) return false;
  std::memcpy(place.data(), frame.data(), frame.size());
  to_driver_.commit(frame.size());
  return true;
}

std::size_t InProcessNic::receive(std::span<std::byte> to) {
  for (auto frame = to_application_.front(); !frame.empty(); frame = to_application_.front()) {
    const std::size_t bytes = frame.size();
    const bool fits = bytes <= to.size();
    if (fits) std::memcpy(to.data(), frame.data(), bytes);
    to_application_.pop();
    if (fits) return bytes;
    count_drop();
  }
  return 0;
}

void InProcessNic::set_up(bool up) {
  change([up](NicSettings& wanted) { wanted.up = up; });
}

void InProcessNic::set_address(const MacAddress& mac) {
  change([&](NicSettings& wanted) {
    wanted.mac = mac;
    address_set_ = true;
  });
}

bool InProcessNic::set_mtu(std::uint32_t mtu) {
  bool accepted = false;
  change([&](NicSettings& wanted) {
    accepted = mtu >= kLeastMtu && mtu <= max_mtu_ && mtu + kHeaderAndTags <= to_driver_.frame_bytes();
    if (accepted) wanted.mtu = mtu;
  });
  return accepted;
}

void InProcessNic::set_promiscuous(bool on) {
  change([on](NicSettings& wanted) { wanted.promiscuous = on; });
}

void InProcessNic::set_all_multicast(bool on) {
  change([on](NicSettings& wanted) { wanted.all_multicast = on; });
}

void InProcessNic::set_multicast(std::vector<MacAddress> groups) {
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  change([&](NicSettings& wanted) {
    wanted.multicast = std::move(groups);
    wanted.all_multicast = false;
  });
}

MacAddress InProcessNic::address() const {
  const std::lock_guard lock(mutex_);
  return wanted_.mac;
}

std::uint32_t InProcessNic::mtu() const {
  const std::lock_guard lock(mutex_);
  return wanted_.mtu;
}

std::size_t InProcessNic::read_frame(std::span<std::byte> to) {
  for (auto frame = to_driver_.front(); !frame.empty(); frame = to_driver_.front()) {
    const std::size_t bytes = frame.size();
    const bool fits = bytes <= to.size();
    if (fits) std::memcpy(to.data(), frame.data(), bytes);
    to_driver_.pop();
    if (fits) return bytes;
    count_drop();
  }
  return 0;
}

bool InProcessNic::write_frame(const messaging::ReceivedFrame& frame) {
  const std::span<std::byte> place = to_application_.claim();
  if (!up_.load(std::memory_order_relaxed) || place.size() < frame.size() || frame.size() == 0) {
    count_drop();
    return false;
  }
  frame.copy_out(place.first(frame.size()));
  to_application_.commit(frame.size());
  return true;
}

void InProcessNic::set_max_mtu(std::uint32_t max_mtu) {
  change([&](NicSettings& wanted) {
    max_mtu_ = max_mtu;
    wanted.mtu = std::min(wanted.mtu, max_mtu);
  });
}

void InProcessNic::set_mac(const MacAddress& mac) {
  change([&](NicSettings& wanted) {
    if (!address_set_) wanted.mac = mac;
  });
}

MacAddress InProcessNic::preferred_mac() const {
  const std::lock_guard lock(mutex_);
  return address_set_ ? wanted_.mac : MacAddress{};
}

const NicSettings& InProcessNic::settings(Time /*now*/) {
  if (generation_.load(std::memory_order_relaxed) != seen_generation_) {
    const std::lock_guard lock(mutex_);
    ::eventfd_t rung = 0;
    ::eventfd_read(changed_.get(), &rung);
    seen_ = wanted_;
    seen_generation_ = generation_.load(std::memory_order_relaxed);
  }
  return seen_;
}

void InProcessNic::collect_descriptors(std::vector<int>& out) const {
  out.push_back(to_driver_.descriptor());
  out.push_back(changed_.get());
}

}  // namespace splitnic::host
