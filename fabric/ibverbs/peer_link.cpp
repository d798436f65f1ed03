#include "fabric/ibverbs/peer_link.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

namespace splitnic::ibverbs {

PeerLink::PeerLink(const fabric::LinkOptions& options, RandomSource& random, std::function<void()> hung_up)
    : options_(options), random_(random), hung_up_(std::move(hung_up)), set_(epoll_create1(EPOLL_CLOEXEC)) {}

PeerLink::~PeerLink() {
  if (set_ >= 0) close(set_);
}

PeerLink::Parts PeerLink::use(std::shared_ptr<fabric::Bridge> bridge) {
  if (watched_) epoll_ctl(set_, EPOLL_CTL_DEL, bridge_->doorbell_descriptor(), nullptr);
  watched_ = false;
  if (link_ != nullptr) {
    before_ = link_->incarnation();
    link_->keep_live_incarnation(before_, nullptr);
  }
  Parts before{std::move(bridge_), std::move(link_)};
  live_ = 0;
  bridge_ = std::move(bridge);
  if (bridge_ == nullptr) return before;
  link_ = std::make_unique<fabric::FabricLink>(*bridge_, options_, random_);
  link_->keep_live_incarnation(before_, &live_);
  link_->restart();
  epoll_event readable{};
  readable.events = EPOLLIN;
  watched_ = epoll_ctl(set_, EPOLL_CTL_ADD, bridge_->doorbell_descriptor(), &readable) == 0;
  return before;
}

std::size_t PeerLink::poll(Time now) {
  if (rests(now)) return 0;
  const std::size_t changed = link_->poll(now);
  // The descriptor of a bridge whose peer has hung up stays readable: nothing sleeps on it any more.
  if (hung_up()) {
    epoll_ctl(set_, EPOLL_CTL_DEL, bridge_->doorbell_descriptor(), nullptr);
    watched_ = false;
    hung_up_();
  }
  return changed;
}

bool PeerLink::brings_more() {
  const auto waits = [this](VirtualLane lane) {
    const fabric::SlotLane& slots = *link_->slots(lane);
    return slots.receiver.waiting() || slots.sender.has_news();
  };
  return up() && (waits(VirtualLane::control) || waits(VirtualLane::data));
}

fabric::PortAddress PeerLink::peer_port_address() const {
  return link_ == nullptr ? PortAddress{} : link_->peer_port_address();
}

}  // namespace splitnic::ibverbs
