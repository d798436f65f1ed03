#include "bench/fabric/end.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "common/check.h"
#include "fabric/verbs/wait.h"

namespace splitnic::bench {

namespace {

using verbs::Right;
using verbs::Status;

constexpr Duration kLongestSleep = std::chrono::milliseconds(100);
// After so many polls in vain, another process may have more use for the core.
constexpr std::size_t kTurnsBeforeYield = 2000;
constexpr std::size_t kTurnsBetweenLooks = 64;  // for the other process's end
constexpr std::size_t kControlDepth = 4;
constexpr std::size_t kSpareQueuePairs = 63;  // the control queue pair, and those that an earlier measurement leaves

constexpr verbs::Rights kRights =
    Right::local_read | Right::local_write | Right::remote_read | Right::remote_write | Right::remote_atomic;

/// What each end tells the other before the first queue pair is connected.
using Introduction = std::array<std::byte, verbs::kQueuePairAddressBytes + 3 * verbs::kRemoteKeyBytes>;

Introduction encode(const verbs::QueuePairAddress& address, const RemoteAreas& areas) {
  Introduction introduction;
  auto at = std::ranges::copy(verbs::encode(address), introduction.begin()).out;
  for (const auto& key : {areas.source, areas.segmented_sink, areas.direct_sink}) {
    at = std::ranges::copy(verbs::encode(key), at).out;
  }
  return introduction;
}

std::optional<verbs::QueuePairAddress> decode(const Introduction& introduction, RemoteAreas& areas) {
  std::span<const std::byte> rest(introduction);
  const auto address = verbs::decode_queue_pair_address(rest.first(verbs::kQueuePairAddressBytes));
  rest = rest.subspan(verbs::kQueuePairAddressBytes);
  for (auto* key : {&areas.source, &areas.segmented_sink, &areas.direct_sink}) {
    *key = verbs::decode_remote_key(rest.first(verbs::kRemoteKeyBytes)).value();
    rest = rest.subspan(verbs::kRemoteKeyBytes);
  }
  return address;
}

verbs::ContextOptions context_options(const EndOptions& with) {
  verbs::ContextOptions options;
  options.adapter.cell_payload_bytes = with.cell_bytes;
  options.adapter.max_message_bytes = kMaxBytes;
  options.adapter.max_queue_pairs = with.queue_pairs + kSpareQueuePairs;
  options.adapter.max_paths = std::max(options.adapter.max_paths, with.paths + with.idle_paths);
  return options;
}

}  // namespace

End::End(std::vector<std::unique_ptr<fabric::Bridge>> bridges, const EndOptions& options)
    : options_(options), memory_(2 * kAreaBytes), control_memory_(kControlDepth * sizeof(ControlMessage)) {
  auto context = verbs::Context::open(context_options(options));
  SPLITNIC_CHECK(context.has_value());
  context_ = std::move(*context);
  SPLITNIC_CHECK_OP(bridges.size(), ==, options.paths + options.idle_paths);
  paths_.reserve(bridges.size());
  for (auto& bridge : bridges) {
    fabric::LinkOptions link;
    if (!paths_.empty()) {  // a thousand of them are to fit the machine's memory
      link.slot_bytes = {1U << 10U, 8U << 10U};
      link.payload_bytes = {4U << 10U, 16U << 10U};
    }
    auto path = context_.add_path(std::move(bridge), link);
    SPLITNIC_CHECK(path.has_value());
    paths_.push_back(std::move(*path));
  }
}

Result<void> End::come_up(int channel) {
  if (auto up = run_until([this] { return std::ranges::all_of(paths_, &verbs::Path::up); }); !up) return up;
  if (auto done = register_areas(); !done) return done;
  if (auto done = make_control_queue_pair(); !done) return done;
  if (auto done = introduce(channel); !done) return done;
  talking_ = true;
  return {};
}

Result<void> End::register_areas() {
  if (paths_.front().bridge_bytes() < kAreaBytes) return fail("the bridge's memory is too small");
  auto domain = context_.allocate_domain();
  if (!domain) return fail("no protection domain: {}", to_string(domain.error()));
  domain_ = std::move(*domain);
  const std::span<std::byte> all(memory_);
  for (auto [area, bytes] :
       {std::pair{&source_, all.first(kAreaBytes)}, std::pair{&segmented_sink_, all.subspan(kAreaBytes)}}) {
    auto region = domain_.register_memory(bytes, kRights);
    if (!region) return fail("memory could not be registered: {}", to_string(region.error()));
    *area = Area(std::move(*region), bytes);
  }
  auto placeable = domain_.register_bridge_memory(paths_.front(), 0, kAreaBytes, kRights, verbs::BridgeAccess::direct);
  auto control = domain_.register_memory(control_memory_, Right::local_read | Right::local_write);
  if (!placeable || !control) return fail("memory could not be registered");
  direct_sink_ = Area(std::move(*placeable));
  control_region_ = std::move(*control);
  return {};
}

Result<void> End::make_control_queue_pair() {
  auto completions = context_.create_completion_queue(4 * kControlDepth);
  if (!completions) return fail("no completion queue: {}", to_string(completions.error()));
  control_completions_ = std::move(*completions);
  verbs::QueuePairOptions shape;
  shape.send_completions = shape.receive_completions = &control_completions_;
  shape.send_depth = shape.receive_depth = kControlDepth;
  shape.max_inline_bytes = sizeof(ControlMessage);
  auto queue_pair = domain_.create_queue_pair(shape);
  if (!queue_pair) return fail("no queue pair: {}", to_string(queue_pair.error()));
  control_ = std::move(*queue_pair);
  return {};
}

Result<void> End::introduce(int channel) {
  const auto exchange = [&](std::span<const std::byte> own, std::span<std::byte> other) -> Result<void> {
    if (::send(channel, own.data(), own.size(), MSG_NOSIGNAL) < 0) return fail("the other process is gone");
    ssize_t got = -1;
    auto waited = run_until([&] {
      got = ::recv(channel, other.data(), other.size(), MSG_DONTWAIT);
      return got >= 0 || errno != EAGAIN;
    });
    if (!waited) return waited;
    if (got != static_cast<ssize_t>(other.size())) return fail("the other process is gone");
    return {};
  };
  const Introduction own = encode(control_.address(), {source_.key(), segmented_sink_.key(), direct_sink_.key()});
  Introduction other;
  if (auto done = exchange(own, other); !done) return done;
  const auto address = decode(other, remote_);
  if (!address || control_.connect(paths_.front(), *address) != Status::ok)
    return fail("the queue pairs could not be connected");
  for (std::size_t i = 0; i < kControlDepth; ++i) post_control_receive();
  // The other end's receives are posted, too, before anything is sent.
  std::array<std::byte, 1> ready{};
  return exchange(std::array<std::byte, 1>{}, ready);
}

void End::post_control_receive() {
  // One message is under way at a time, so the receives may share a place.
  const auto request = verbs::receive(0, control_region_.segment(0, sizeof(ControlMessage)));
  if (const Status status = control_.post_receive(request); status != Status::ok) note_failure(to_string(status));
}

Result<void> End::say(const ControlMessage& message) {
  std::array<std::byte, sizeof(ControlMessage)> bytes;
  std::memcpy(bytes.data(), &message, sizeof message);
  auto request = verbs::send(0, {verbs::LocalSegment{bytes.data(), sizeof message, verbs::Stag{}}});
  request.inline_data = true;
  const Status status = control_.post_send(request);
  if (status != Status::ok) return fail("can't send to the other process: {}", to_string(status));
  return {};
}

std::optional<ControlMessage> End::heard() {
  std::array<verbs::Completion, 1> completion;
  while (control_completions_.poll(completion) == 1) {
    if (completion[0].status != verbs::CompletionStatus::success) {
      note_failure(to_string(completion[0].status));
    } else if (completion[0].receive) {
      ControlMessage message;
      std::memcpy(&message, control_memory_.data(), sizeof message);
      post_control_receive();
      return message;
    }
  }
  return std::nullopt;
}

std::size_t End::turn() {
  now_ = clock_.now();
  return context_.poll(now_);
}

Result<void> End::rest(std::size_t idle_turns) {
  const bool looks = idle_turns % kTurnsBetweenLooks == 0 || options_.sleep;
  if (talking_ && looks && !paths_.front().up()) return fail("the other process is gone");
  if (idle_turns == 0) idle_since_ = now_;
  if (now_ - idle_since_ > kPatience) {
    return fail("nothing has come from the other process for {} s",
                std::chrono::duration_cast<std::chrono::seconds>(kPatience).count());
  }
  if (options_.sleep && talking_ && may_sleep_) {
    now_ = clock_.read();
    SPLITNIC_CHECK(verbs::wait(context_, now_, now_ + kLongestSleep) == Status::ok);
    static_cast<void>(clock_.read());
  } else if (options_.shares_core || idle_turns > kTurnsBeforeYield) {
    std::this_thread::yield();
  }
  return {};
}

}  // namespace splitnic::bench
