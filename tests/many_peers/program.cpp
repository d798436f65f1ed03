#include "program.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fabric/verbs/wait.h"

namespace splitnic::many_peers {

using verbs::Right;

namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr Duration kLook = std::chrono::milliseconds(2);
/// The identifiers of the program's requests, by peer: its receives, and its answer.
constexpr std::uint64_t kIdsPerPeer = 16;
constexpr std::uint64_t kAnswer = kIdsPerPeer - 1;
static_assert(kReceives < kAnswer);

}  // namespace

Program::Program(std::string executable) : executable_(std::move(executable)) {
  verbs::ContextOptions options = patient(random_);
  options.adapter.max_queue_pairs = 4 * kPeers;
  context_ = made(verbs::Context::open(options), "context");
  domain_ = made(context_.allocate_domain(), "domain");
  completions_ = made(context_.create_completion_queue(1U << 14U), "completion queue");
  region_ = made(domain_.register_memory(std::as_writable_bytes(std::span(memory_.get(), 1)),
                                         Right::local_read | Right::local_write | Right::remote_read |
                                             Right::remote_write | Right::remote_atomic),
                 "memory");
  tag_ = region_.tag();
  connections_ = made(verbs::Connections::open(context_), "connections");
  service_ = made(connections_->listen(kService, kPeers), "service");

  fabric::ShmListenOptions listen;
  listen.path = directory_.path("socket");
  listen.window_bytes = fabric::kShmMinBytes;
  listen.max_setting_up = listen.max_setting_up_per_user = 2 * kPeers;
  auto listener = fabric::ShmListener::listen(listen);
  require(listener.has_value(), "nobody can listen");
  listener_ = std::move(*listener);
  auto socket = fabric::UdpSocket::open({ip_of(0), kUdpPort});
  require(socket.has_value(), "no UDP socket");
  socket_ = std::move(*socket);

  for (std::size_t peer = 0; peer < kPeers; ++peer) {
    if (kind_of(peer) == Kind::loopback) {
      begin_loopback(peer);
    } else {
      start(peer);
    }
  }
}

Program::~Program() {
  for (const Seat& seat : seats_) {
    if (seat.pid == 0) continue;
    ::kill(seat.pid, SIGKILL);
    waitpid(seat.pid, nullptr, 0);
  }
  for (Seat& seat : seats_) seat = Seat{};  // links before their socket
}

/// Addresses of this machine that no other run has, as long as process numbers differ in their low 16 bits.
std::string Program::ip_of(std::size_t number) const {
  const auto pid = static_cast<unsigned>(getpid());
  return fmt::format("127.{}.{}.{}", (pid >> 8U) % 256U, pid % 256U, 1 + number);
}

void Program::start(std::size_t peer) {
  Seat& seat = seats_[peer];
  ++seat.lives;
  const std::string index = fmt::format("{}", peer);
  const std::string own_ip = ip_of(1 + peer);
  const std::string program_ip = ip_of(0);
  const std::string socket = directory_.path("socket");
  const bool udp = kind_of(peer) == Kind::udp;
  if (udp && !seat.path) {
    fabric::UdpOptions options;
    options.port_address = context_.port_address();
    options.silence = std::chrono::seconds(20);
    auto link = socket_->connect({own_ip, kUdpPort}, options, random_);
    require(link.has_value(), "no UDP link");
    seat.path = made(context_.add_path(std::shared_ptr<fabric::CellLink>(std::move(*link))), "path");
  }
  seat.pid = fork();
  require(seat.pid >= 0, "no process");
  if (seat.pid != 0) return;
  if (udp) {
    execl(executable_.c_str(), executable_.c_str(), "--peer", index.c_str(), "--ip", own_ip.c_str(), "--program",
          program_ip.c_str(), nullptr);
  } else {
    execl(executable_.c_str(), executable_.c_str(), "--peer", index.c_str(), "--socket", socket.c_str(), nullptr);
  }
  _exit(127);
}

verbs::QueuePair Program::new_queue_pair() {
  verbs::QueuePairOptions options;
  options.send_completions = options.receive_completions = &completions_;
  options.flush_posts = true;  // what a killed peer said last may be taken after its path has gone down
  return made(domain_.create_queue_pair(options), "queue pair");
}

void Program::begin_loopback(std::size_t peer) {
  Seat& seat = seats_[peer];
  auto paths = made(context_.add_loopback(), "loop-back");
  seat.near = std::move(paths[0]);
  seat.path = std::move(paths[1]);
  seat.here = std::make_unique<Peer>(peer, context_, domain_);
  for (int i = 0; i < 1000 && !(seat.near->up() && seat.path.up()); ++i) context_.poll(monotonic_now());
  new_life(peer);
  verbs::QueuePair& theirs = seat.here->queue_pair();
  const auto own_address = seat.queue_pair.address();
  require_ok(seat.queue_pair.connect(seat.path, theirs.address()), "loop-back");
  require_ok(theirs.connect(*seat.near, own_address), "loop-back");
  seat.here->begin(key_of(peer));
}

/// Of a peer that begins, whose predecessor's requests are all over.
void Program::new_life(std::size_t peer) {
  Seat& seat = seats_[peer];
  seat.connection.reset();
  seat.queue_pair = new_queue_pair();
  seat.reborn = true;
  seat.received = 0;
  seat.word_first = word_of(peer);
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) post_receive(peer, slot);
}

void Program::post_receive(std::size_t peer, std::uint64_t slot) {
  const std::size_t at = offsetof(Memory, incoming) + (peer * kReceives + slot) * sizeof(Message);
  const auto receive = verbs::receive(peer * kIdsPerPeer + slot, region_.segment(at, sizeof(Message)));
  require_ok(seats_[peer].queue_pair.post_receive(receive), "receive");
}

std::uint64_t Program::word_of(std::size_t peer) const {
  std::uint64_t value = 0;
  std::memcpy(&value, memory_->shares.data() + peer * kShare + kWord, sizeof value);
  return value;
}

verbs::RemoteKey Program::key_of(std::size_t peer) const {
  return made(region_.remote_key(offsetof(Memory, shares) + peer * kShare, kShare), "key");
}

void Program::serve(std::uint64_t answers, Time until) {
  for (Seat& seat : seats_) seat.goal = answers;
  const Time give_up_at = monotonic_now() + kPatience;
  for (;;) {
    const Time now = monotonic_now();
    const auto waiting = std::ranges::find_if(seats_, [](const Seat& seat) { return seat.goal > 0 || seat.killed; });
    if (waiting == seats_.end() && now >= until) return;
    if (now >= give_up_at) give_up(fmt::format("peer {} has no answers for a minute", waiting - seats_.begin()));
    if (step(now) == 0) require_ok(verbs::wait(context_, now, now + kLook), "wait");
  }
}

std::size_t Program::step(Time now) {
  std::size_t moved = context_.poll(now);
  std::array<verbs::Completion, 64> done;
  const std::size_t count = completions_.poll(done);
  for (std::size_t i = 0; i < count; ++i) take(done[i]);
  take_events();
  take_bridges(now);
  take_requests();
  take_ends();
  for (Seat& seat : seats_) {
    if (seat.here != nullptr) moved += seat.here->work(now);
  }
  return moved + count;
}

void Program::take_bridges(Time now) {
  listener_->poll(now);
  while (auto accepted = listener_->take()) {
    const auto peer = static_cast<std::size_t>(std::stoul(accepted->name));
    require(accepted->pid == seats_.at(peer).pid, "somebody else calls");
    seats_[peer].path = made(context_.add_path(std::move(accepted->bridge)), "path");
  }
}

void Program::take_requests() {
  while (auto request = service_->take()) {
    const verbs::ConnectionInfo info = request->info();
    require(info.data.size() == 1, "a request of somebody else");
    const auto peer = static_cast<std::size_t>(info.data.bytes()[0]);
    require(seats_.at(peer).path.number() == info.path, "a request by another path");
    new_life(peer);
    require_ok(request->accept(seats_[peer].queue_pair, encode(key_of(peer))), "accept");
    seats_[peer].connection = std::move(*request);
  }
}

std::optional<std::size_t> Program::seat_of(verbs::PathNumber path) const {
  const auto seat = std::ranges::find_if(seats_, [path](const Seat& one) { return one.path.number() == path; });
  if (seat == seats_.end()) return std::nullopt;
  return static_cast<std::size_t>(seat - seats_.begin());
}

/// Fails if a process ended that nobody killed.
void Program::take_events() {
  std::array<verbs::AsyncEvent, 16> events;
  const std::size_t count = context_.poll_events(events);
  for (const verbs::AsyncEvent& event : std::span(events).first(count)) {
    switch (event.kind) {
      case verbs::AsyncEventKind::path_down: {
        const auto peer = seat_of(event.path);
        ++paths_down_;
        // No seat: the successor's path is there already.
        require(!peer || seats_[*peer].killed, fmt::format("the path to peer {} went down", peer.value_or(0)));
        break;
      }
      case verbs::AsyncEventKind::queue_pair_fatal: {
        const auto seat = std::ranges::find_if(
            seats_, [&](const Seat& one) { return one.queue_pair.address().queue_pair == event.queue_pair; });
        require(seat == seats_.end() || seat->killed,
                fmt::format("the queue pair of peer {} failed", seat - seats_.begin()));
        break;
      }
      default:
        give_up(fmt::format("an event: {}", to_string(event.kind)));
    }
  }
}

void Program::take_ends() const {
  int status = 0;
  const pid_t ended = waitpid(-1, &status, WNOHANG);
  if (ended <= 0) return;
  const auto seat = std::ranges::find_if(seats_, [ended](const Seat& one) { return one.pid == ended; });
  require(seat == seats_.end(), fmt::format("peer {} ended by itself, with {:#x}", seat - seats_.begin(), status));
}

void Program::take(const verbs::Completion& done) {
  const std::size_t peer = static_cast<std::size_t>(done.id / kIdsPerPeer);
  Seat& seat = seats_.at(peer);
  if (done.queue_pair != seat.queue_pair.address().queue_pair) return;  // a predecessor's
  if (done.status != verbs::CompletionStatus::success) {
    require(seat.killed, fmt::format("a request to peer {} ended as {}", peer, to_string(done.status)));
    return;
  }
  if (!done.receive) return;
  const std::uint64_t slot = done.id % kIdsPerPeer;
  answer(peer, memory_->incoming[peer].at(slot));
  post_receive(peer, slot);
}

void Program::answer(std::size_t peer, const Message& message) {
  Seat& seat = seats_[peer];
  require(message == Message::made(peer, seat.received, seat.received),
          fmt::format("message {} of peer {} is missing, twice there, or another one", seat.received, peer));
  // Each earlier addition was carried out, once; the next one may have been.
  const std::uint64_t added = word_of(peer) - seat.word_first;
  require(added == seat.received || added == seat.received + 1,
          fmt::format("peer {} has added {} times, its word says {}", peer, seat.received, added));
  Message written;
  std::memcpy(&written, memory_->shares.data() + peer * kShare, sizeof written);
  require(written == message, fmt::format("the share of peer {} is not as it wrote it", peer));
  memory_->outgoing[peer] = Message::made(peer, seat.received, 0);
  const std::size_t at = offsetof(Memory, outgoing) + peer * sizeof(Message);
  const auto reply = verbs::send(peer * kIdsPerPeer + kAnswer, {region_.segment(at, sizeof(Message))});
  require_ok(seat.queue_pair.post_send(reply), "answer");
  ++seat.received;
  ++answers_;
  if (seat.killed && !seat.reborn) return;  // it was sent before its end
  seat.killed = false;
  if (seat.goal > 0) --seat.goal;
}

void Program::kill(std::size_t peer) {
  Seat& seat = seats_[peer];
  seat.killed = true;
  seat.reborn = false;
  require(::kill(seat.pid, SIGKILL) == 0, "nobody to kill");
  waitpid(seat.pid, nullptr, 0);
  start(peer);
}

void Program::judge(std::size_t killed) {
  require(paths_down_ == killed, fmt::format("{} paths went down, of {} that should", paths_down_, killed));
  paths_down_ = 0;
  require(region_.valid() && region_.tag() == tag_, "the tag of the program's memory has ended");
  const auto counters = context_.counters();
  require(counters.access_refused == 0, fmt::format("{} accesses were refused", counters.access_refused));
}

}  // namespace splitnic::many_peers
