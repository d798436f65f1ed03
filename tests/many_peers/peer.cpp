#include "peer.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "common/os/timespec.h"
#include "fabric/bridge/shm_connector.h"
#include "fabric/link/udp_socket.h"
#include "fabric/verbs/wait.h"

namespace splitnic::many_peers {

using verbs::Right;

Peer::Peer(std::size_t index, verbs::Context& context, verbs::ProtectionDomain& domain) : index_(index) {
  region_ = made(
      domain.register_memory(std::as_writable_bytes(std::span(&memory_, 1)), Right::local_read | Right::local_write),
      "memory");
  completions_ = made(context.create_completion_queue(64), "completion queue");
  verbs::QueuePairOptions options;
  options.send_completions = options.receive_completions = &completions_;
  queue_pair_ = made(domain.create_queue_pair(options), "queue pair");
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) post_receive(slot);
}

void Peer::post_receive(std::uint64_t slot) {
  const std::size_t at = offsetof(Memory, incoming) + slot * sizeof(Message);
  require_ok(queue_pair_.post_receive(verbs::receive(slot, region_.segment(at, sizeof(Message)))), "receive");
}

void Peer::begin(const verbs::RemoteKey& key) {
  key_ = key;
  next_turn_ = Time{};
}

std::size_t Peer::work(Time now) {
  std::array<verbs::Completion, 16> done;
  const std::size_t count = completions_.poll(done);
  for (std::size_t i = 0; i < count; ++i) take(done[i]);
  if (open_ != 0 || now < next_turn_) return count;
  next_turn_ = now + kTurn;
  turn();
  return count + 1;
}

void Peer::turn() {
  memory_.outgoing = Message::made(index_, turns_, turns_);
  const auto outgoing = region_.segment(offsetof(Memory, outgoing), sizeof(Message));
  const auto before = region_.segment(offsetof(Memory, before), sizeof(memory_.before));
  // The message carries the number of additions before this turn. The program compares it with the word on arrival.
  require_ok(queue_pair_.post_send(verbs::rdma_write(kWrite, {outgoing}, key_.at())), "write");
  require_ok(queue_pair_.post_send(verbs::send(kSay, {outgoing})), "send");
  require_ok(queue_pair_.post_send(verbs::fetch_add(kAdd, before, key_.at(kWord), 1)), "addition");
  open_ = 4;
}

void Peer::take(const verbs::Completion& done) {
  require(done.status == verbs::CompletionStatus::success,
          fmt::format("peer {}: request {} ended as {}", index_, done.id, to_string(done.status)));
  require(open_ > 0, fmt::format("peer {}: more came than was asked for", index_));
  --open_;
  if (done.receive) {
    const bool as_expected = memory_.incoming[done.id] == Message::made(index_, answers_, 0);
    require(as_expected, fmt::format("peer {}: answer {} is missing, twice there, or another one", index_, answers_));
    ++answers_;
    post_receive(done.id);
  } else if (done.id == kAdd) {
    if (turns_ == 0) first_ = memory_.before;
    require(memory_.before == first_ + turns_,
            fmt::format("peer {}: addition {} was lost or repeated", index_, turns_));
    ++turns_;
  }
}

namespace {

/// A process's own context, with a path to the program.
struct Endpoint {
  explicit Endpoint(const Way& way) {
    context = made(verbs::Context::open(patient(random)), "context");
    path = way.socket.empty() ? over_udp(way) : over_bridge(way);
    domain = made(context.allocate_domain(), "domain");
  }
  verbs::Path over_bridge(const Way& way) {
    fabric::ShmConnectOptions options;
    options.path = way.socket;
    options.name = way.name;
    auto connector = fabric::ShmConnector::start(options, monotonic_now());
    require(connector.has_value(), "nobody listens");
    std::optional<Result<std::unique_ptr<fabric::Bridge>>> bridge;
    for (Time now = monotonic_now(); !(bridge = (*connector)->poll(now)); now = monotonic_now()) {
      pollfd reply{(*connector)->descriptor(), POLLIN, 0};
      const timespec limit = os::timespec_of((*connector)->next_deadline() - now);
      static_cast<void>(::ppoll(&reply, 1, &limit, nullptr));
    }
    require(bridge->has_value(), "no bridge");
    return made(context.add_path(std::move(**bridge)), "path");
  }
  verbs::Path over_udp(const Way& way) {
    auto opened = fabric::UdpSocket::open({way.own_ip, kUdpPort});
    require(opened.has_value(), "no UDP socket");
    socket = std::move(*opened);
    fabric::UdpOptions options;
    options.port_address = context.port_address();
    options.silence = std::chrono::seconds(20);
    auto link = socket->connect({way.program_ip, kUdpPort}, options, random);
    require(link.has_value(), "no UDP link");
    return made(context.add_path(std::shared_ptr<fabric::CellLink>(std::move(*link))), "path");
  }

  SystemRandom random;
  std::unique_ptr<fabric::UdpSocket> socket;
  verbs::Context context;
  verbs::Path path;
  verbs::ProtectionDomain domain;
};

}  // namespace

void run_peer(std::size_t index, const Way& way) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Endpoint end(way);
  Peer peer(index, end.context, end.domain);
  auto connections = made(verbs::Connections::open(end.context), "connections");
  std::optional<verbs::Connection> connection;
  const std::array<std::byte, 1> who{static_cast<std::byte>(index)};
  bool begun = false;
  for (;;) {
    const Time now = monotonic_now();
    std::size_t moved = end.context.poll(now);
    if (!connection && end.path.up()) {
      connection = made(connections.connect(end.path, kService, peer.queue_pair(), who), "connection");
    }
    if (connection && !begun && connection->state() == verbs::ConnectionState::established) {
      const auto key = verbs::decode_remote_key(connection->info().data.bytes());
      require(key.has_value(), "the program's answer is no key");
      peer.begin(*key);
      begun = true;
    }
    require(!connection || connection->state() != verbs::ConnectionState::ended,
            fmt::format("peer {}: its connection has ended", index));
    if (begun) moved += peer.work(now);
    if (moved == 0)
      require_ok(verbs::wait(end.context, now, std::min(peer.next_turn(), now + std::chrono::seconds(1))), "wait");
  }
}

}  // namespace splitnic::many_peers
