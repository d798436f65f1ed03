#include "tests/hostile_host/ends.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "fabric/bridge/shm_connector.h"

namespace splitnic::hostile {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

messaging::SessionOptions host_options(const Target& target, bool offloads) {
  messaging::SessionOptions options;
  options.name = target.name;
  options.offloads = options.udp_segments = offloads;
  return options;
}

}  // namespace

std::unique_ptr<fabric::Bridge> connect_once(const Target& target, std::uint64_t cookie) {
  fabric::ShmConnectOptions options;
  options.path = target.socket;
  options.name = target.name;
  options.features = fabric::kShmFeatureFurtherQueues;
  options.cookie = cookie;
  if (cookie != 0) options.purpose = fabric::ShmPurpose::further_queue;
  auto attempt = fabric::ShmConnector::start(options, monotonic_now());
  while (attempt && target.goes_on()) {
    auto outcome = (*attempt)->poll(monotonic_now());
    if (outcome) return *outcome ? std::move(**outcome) : nullptr;
    std::this_thread::yield();
  }
  return nullptr;
}

std::unique_ptr<fabric::Bridge> connect(const Target& target) {
  while (target.goes_on()) {
    if (auto bridge = connect_once(target)) return bridge;
    target.be_idle(milliseconds(1));
  }
  return nullptr;
}

// ---- a host that is up

HostEnd::HostEnd(const Target& target, std::shared_ptr<fabric::Bridge> bridge, bool offloads)
    : bridge_(std::move(bridge)), session_(host_options(target, offloads), *bridge_, random_, *this) {}

bool HostEnd::come_up(const Target& target) {
  while (target.goes_on() && bridge_->link() == fabric::LinkState::up) {
    if (session_.up()) return true;
    if (poll() == 0) std::this_thread::yield();
  }
  return false;
}

std::size_t HostEnd::poll() {
  const std::size_t work = session_.poll(monotonic_now());
  session_.flush();
  return work;
}

std::size_t HostEnd::send_all(const std::vector<std::byte>& frame, const frame::FrameOffload& offload) {
  std::size_t sent = 0;
  for (; sent < 64; ++sent) {
    const auto memory = session_.claim(static_cast<std::uint32_t>(frame.size()));
    if (memory.size() < frame.size()) break;
    memory.write(0, frame);
    session_.commit(static_cast<std::uint32_t>(frame.size()), offload);
  }
  session_.flush();
  return sent;
}

// ---- a host that speaks for itself

ControlEnd::ControlEnd(const Target& target, std::unique_ptr<fabric::Bridge> bridge)
    : bridge_(std::move(bridge)), end_({.name = target.name}, *bridge_, random_) {}

bool ControlEnd::wait(const Target& target, const std::function<bool()>& condition) {
  const Time give_up = std::min(target.until, monotonic_now() + seconds(2));
  while (!condition()) {
    if (monotonic_now() > give_up || bridge_->link() == fabric::LinkState::down) return false;
    end_.poll(monotonic_now());
    std::this_thread::yield();
  }
  return true;
}

bool ControlEnd::start_over(const Target& target) {
  if (incarnation_ != 0 && end_.connected() && end_.incarnation() == incarnation_) end_.restart();
  if (!wait(target, [&] { return end_.connected() && end_.incarnation() != incarnation_; })) return false;
  incarnation_ = end_.incarnation();
  return true;
}

bool ControlEnd::greet(const Target& target) {
  if (!start_over(target) || !end_.greet()) return false;
  return wait(target, [this] { return end_.heard().answer != 0 || ended(); }) && end_.heard().granted && !ended();
}

bool ControlEnd::come_up(const Target& target) {
  const auto step = [this] {
    if (!ended()) end_.take_next_step();
    return end_.ready() || ended();
  };
  return start_over(target) && wait(target, step) && !ended();
}

bool ControlEnd::poll() {
  end_.poll(monotonic_now());
  return end_.connected() && !end_.failed() && end_.incarnation() == incarnation_ &&
         bridge_->link() == fabric::LinkState::up;
}

// ---- frames

std::vector<std::byte> frame_of(const MacAddress& to, const MacAddress& from, std::size_t bytes,
                                std::span<const std::uint16_t> tags) {
  std::vector<std::byte> frame;
  const auto put = [&](unsigned octet) { frame.push_back(static_cast<std::byte>(octet & 0xffU)); };
  for (const auto octet : to.octets) put(octet);
  for (const auto octet : from.octets) put(octet);
  for (const unsigned tag : tags) {
    for (const unsigned octet : {0x81U, 0x00U, tag >> 8U, tag}) put(octet);
  }
  put(0x88U);
  put(0xb5U);
  frame.resize(std::max(bytes, frame.size()));
  return frame;
}

}  // namespace splitnic::hostile
