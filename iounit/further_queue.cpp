#include "iounit/further_queue.h"

#include <utility>

namespace splitnic::iounit {

namespace wire = messaging::wire;
using messaging::Answer;
using messaging::Refusal;

FurtherQueue::FurtherQueue(FurtherQueueOwner& owner, std::size_t number, std::shared_ptr<fabric::Bridge> bridge,
                           const messaging::SessionOptions& options, RandomSource& random, Time now)
    : owner_(owner),
      number_(number),
      options_(options),
      bridge_(std::move(bridge)),
      now_(now),
      down_since_(now),
      session_(options, *bridge_, random, *this) {}

bool FurtherQueue::is_dead(Time now) {
  if (session_.up()) return false;
  const bool hung_up = bridge_->link() == fabric::LinkState::down && session_.state() == messaging::SessionState::down;
  return hung_up || (down_since_ != kNever && now - down_since_ > kDownLimit);
}

tl::expected<messaging::HelloGrant, Refusal> FurtherQueue::on_hello(const wire::HelloRequest& hello) {
  return owner_.admit_queue(hello);
}

void FurtherQueue::on_up(const wire::HelloReply*) {
  down_since_ = kNever;
  if (!same_features()) return session_.reset("a further queue needs the features of its session");
  owner_.queue_changed(*this);
}

void FurtherQueue::on_down(std::string_view) {
  if (down_since_ == kNever) down_since_ = now_;
  owner_.queue_changed(*this);
}

Answer FurtherQueue::on_request(const wire::RequestBody& request) {
  // "Ready" says nothing else here: the first session reports the interface's state.
  if (std::holds_alternative<wire::LinkState>(request)) return wire::Acknowledged{};
  if (const auto* report = std::get_if<wire::StatusReport>(&request)) {
    owner_.queue_says(report->text);
    return wire::Acknowledged{};
  }
  return tl::unexpected(Refusal{wire::CfgStatus::not_permitted, "a further queue carries frames alone"});
}

}  // namespace splitnic::iounit
