#include "tests/two_processes/end.h"

#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <exception>
#include <iostream>
#include <optional>

#include "common/random.h"
#include "fabric/bridge/shm_bridge.h"
#include "tests/hostile/child.h"

namespace splitnic::verbs::two_processes {
namespace {

/// The process's exit status. Catch2 has printed a REQUIRE that failed.
int status_of(const std::function<void()>& body) {
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::cout << "initiator: " << error.what() << '\n';
    status = 1;
  } catch (...) {
    status = 1;
  }
  std::cout.flush();
  return status;
}

}  // namespace

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> result(bytes);
  for (auto& byte : result) byte = static_cast<std::byte>(random.next());
  return result;
}

End::End(std::shared_ptr<fabric::Bridge> bridge, os::UniqueFd socket, const Shape& shape)
    : socket_(std::move(socket)), memory_(std::make_unique<Memory>()) {
  ContextOptions patient;
  patient.adapter.ack_timeout = kPatience;  // a busy machine causes no retries, which the counters would show
  context = made(Context::open(patient));
  path = made(context.add_path(std::move(bridge)));
  domain = made(context.allocate_domain(shape.rules));
  completions = made(context.create_completion_queue(64));
  run_until([this] { return path.up(); });
  region = made(domain.register_memory(memory(), kEverything));
  QueuePairOptions options;
  options.send_completions = options.receive_completions = &completions;
  options.max_inline_bytes = kRemoteKeyBytes;
  options.memory_requests = true;
  options.on_memory_request_failure = shape.on_failure;
  queue_pair = made(domain.create_queue_pair(options));
}

void End::connect() {
  if (queue_pair.state() != QueuePairState::reset) REQUIRE(queue_pair.modify(QueuePairState::reset) == Status::ok);
  tell(encode(queue_pair.address()));
  std::array<std::byte, kQueuePairAddressBytes> other{};
  hear(other);
  const auto address = decode_queue_pair_address(other);
  REQUIRE(address.has_value());
  REQUIRE(queue_pair.connect(*address) == Status::ok);
  post_receive();
  meet();
}

void End::meet() {
  tell(std::array<std::byte, 1>{});
  std::array<std::byte, 1> other{};
  hear(other);
}

Completion End::next_completion() {
  std::array<Completion, 1> next;
  run_until([&] { return completions.poll(next) == 1; });
  return next[0];
}

AsyncEvent End::next_event() {
  std::array<AsyncEvent, 1> next;
  run_until([&] { return context.poll_events(next) == 1; });
  return next[0];
}

bool End::no_events() {
  std::array<AsyncEvent, 1> next;
  return context.poll_events(next) == 0;
}

Completion End::expect(std::uint64_t id, CompletionStatus status) {
  const Completion completion = next_completion();
  REQUIRE(completion.id == id);
  REQUIRE(completion.status == status);
  REQUIRE(completion.receive == (id == kReceive));
  return completion;
}

void End::carry_out(const WorkRequest& request, CompletionStatus status) {
  REQUIRE(queue_pair.post_send(request) == Status::ok);
  expect(request.id, status);
}

void End::post_receive() {
  REQUIRE(queue_pair.post_receive(receive(kReceive, region.segment(kInbox, kPage))) == Status::ok);
}

void End::offer(const RemoteKey& key) {
  auto bytes = encode(key);
  WorkRequest request = send(1, {LocalSegment{bytes.data(), kRemoteKeyBytes, Stag{}}});
  request.inline_data = true;
  carry_out(request);
}

RemoteKey End::take_offer() {
  REQUIRE(expect(kReceive, CompletionStatus::success).bytes == kRemoteKeyBytes);
  const auto key = decode_remote_key(memory().subspan(kInbox, kRemoteKeyBytes));
  REQUIRE(key.has_value());
  post_receive();
  return *key;
}

void End::expect_refused(const WorkRequest& request, fabric::TerminateReason reason) {
  carry_out(request, CompletionStatus::remote_access_error);
  expect_end(reason, true);
  REQUIRE(context.counters().terminates_sent == 0);
}

void End::expect_refusal(std::uint64_t refusals, fabric::TerminateReason reason) {
  expect_end(reason, false);
  REQUIRE(context.counters().access_refused == refusals);
  run_until([&] { return context.counters().terminates_sent >= refusals; });
  REQUIRE(context.counters().terminates_sent == refusals);
}

void End::expect_end(fabric::TerminateReason reason, bool from_peer) {
  expect(kReceive, CompletionStatus::flushed);
  REQUIRE(queue_pair.state() == QueuePairState::error);
  const AsyncEvent event = next_event();
  REQUIRE(event.kind == AsyncEventKind::queue_pair_fatal);
  REQUIRE(event.from_peer == from_peer);
  CAPTURE(event.reason.layer, event.reason.type, event.reason.code);
  REQUIRE((event.reason == reason));
  REQUIRE(no_events());
}

void End::fill(std::size_t offset, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, memory().subspan(offset, bytes.size()).begin());
}

bool End::holds(std::size_t offset, std::span<const std::byte> bytes) const {
  return std::ranges::equal(std::span(memory_->bytes).subspan(offset, bytes.size()), bytes);
}

void End::tell(std::span<const std::byte> message) {
  REQUIRE(::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()));
}

void End::hear(std::span<std::byte> message) {
  ssize_t got = -1;
  run_until([&] {
    got = ::recv(socket_.get(), message.data(), message.size(), MSG_DONTWAIT);
    return got >= 0 || errno != EAGAIN;
  });
  INFO("the other process is gone, or is somewhere else in the scenario");
  REQUIRE(got == static_cast<ssize_t>(message.size()));
}

void run(const Shape& shape, const Role& owner, const Role& initiator) {
  auto bridges = fabric::shm_pair(fabric::kShmMinBytes, fabric::kShmMinBytes);
  REQUIRE(bridges.has_value());
  std::array<int, 2> sockets{};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  os::UniqueFd near(sockets[0]);
  os::UniqueFd far(sockets[1]);
  const auto play = [&shape](std::unique_ptr<fabric::Bridge> bridge, os::UniqueFd socket, const Role& role) {
    End end(std::move(bridge), std::move(socket), shape);
    end.connect();
    role(end);
    end.meet();
  };

  std::cout.flush();  // else the new process would print it once more
  fabric::hostile::Child child([&] {
    bridges->first.reset();
    near.reset();
    return status_of([&] { play(std::move(bridges->second), std::move(far), initiator); });
  });
  bridges->second.reset();
  far.reset();
  play(std::move(bridges->first), std::move(near), owner);
  std::optional<int> status;
  const Time begin = monotonic_now();
  while (!(status = child.status()) && monotonic_now() - begin < kPatience) std::this_thread::yield();
  REQUIRE(status == 0);
}

}  // namespace splitnic::verbs::two_processes
