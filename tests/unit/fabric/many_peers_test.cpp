#include <algorithm>
#include <array>

#include "many_peers_wires.h"

/// One program with 64 peers over every kind of link. Peers die; the others lose nothing.
namespace splitnic::fabric::test::many_peers_test {
namespace {

constexpr std::size_t kPeers = 64;
constexpr std::size_t kShare = 1024;  // of the program's memory, for each peer
constexpr std::size_t kWord = kShare - 8;
constexpr std::size_t kMessage = 200;

AdapterOptions patient() {
  AdapterOptions options = test::small_cells();
  options.ack_timeout = milliseconds(2);
  options.retry_count = 200;
  options.receiver_not_ready_retries = 1000;
  options.receiver_not_ready_delay = microseconds(100);
  options.max_queue_pairs = 2 * kPeers;
  return options;
}

/// The program and one of its peers: each has a queue pair to the other, and keeps requests under way.
struct Peer {
  std::unique_ptr<Wire> wire;
  PathNumber path{};
  QpNumber program_number{};      // of the program's queue pair
  std::unique_ptr<Endpoint> end;  // null: not there yet
  // What this life has done.
  std::uint64_t added_before = 0;  // in the program's word when the life began
  std::uint64_t posted = 0;
  std::uint64_t completed = 0;
  std::uint64_t receives = 0;
  std::uint64_t received = 0;
  std::uint64_t sent = 0;  // by the program, to this peer
  std::uint64_t sent_completed = 0;
  std::uint64_t lives = 0;  // begun so far
};

class Program {
 public:
  Program() : adapter(patient(), random_), memory(kPeers * kShare), outgoing(kMessage, std::byte{0x77}) {
    auto socket = UdpSocket::open({});
    REQUIRE(socket.has_value());
    socket_ = std::move(*socket);
    domain_ = adapter.allocate_domain();
    completions_ = adapter.create_completion_queue(4096);
    tag = adapter.register_memory(domain_, memory, kEverything).value();
    outgoing_tag_ = adapter.register_memory(domain_, outgoing, kLocalRights).value();
    for (std::size_t i = 0; i < kPeers; ++i) {
      peers[i].wire = make_wire(i);
      peers[i].path = adapter.attach(peers[i].wire->program()).value();
    }
  }

  void step() {
    now_ += microseconds(20);
    for (Peer& peer : peers) {
      peer.wire->step(now_);
      if (peer.end != nullptr) peer.end->adapter.poll(now_);
    }
    adapter.poll(now_);
    std::array<Completion, 256> done;
    const std::size_t count = adapter.poll_completions(completions_, done);
    for (const Completion& one : std::span(done).first(count)) take(one);
    std::array<AsyncEvent, 16> events;
    for (const AsyncEvent& event : std::span(events).first(adapter.poll_events(events))) {
      if (event.kind == AsyncEventKind::path_down) paths_down.push_back(event.path);
      if (event.kind == AsyncEventKind::queue_pair_fatal) fatal.push_back(event.queue_pair);
    }
    for (std::size_t i = 0; i < kPeers; ++i) work(i);
  }

  /// The peer's process is gone, in the middle of its work; its successor connects when it can.
  void kill(std::size_t i) {
    Peer& peer = peers[i];
    if (peer.wire->final_hang_up()) REQUIRE(adapter.detach(peer.path) == Status::ok);
    peer.end.reset();
    peer.wire->kill();
    if (peer.wire->final_hang_up()) peer.path = adapter.attach(peer.wire->program()).value();
  }

  /// Every completed addition was carried out once, and none that was not posted.
  void check_word(std::size_t i) const {
    const Peer& peer = peers[i];
    INFO("peer " << i);
    const std::uint64_t added = word_of(i) - peer.added_before;
    CHECK(added >= peer.completed / 2);
    CHECK(added <= (peer.posted + 1) / 2);
  }
  [[nodiscard]] std::uint64_t word_of(std::size_t i) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + i * kShare + kWord, sizeof value);
    return value;
  }

 private:
  SeededRandom random_{31};
  std::unique_ptr<UdpSocket> socket_;

 public:
  // In this order: an adapter before its links, links before their socket.
  std::array<Peer, kPeers> peers;
  std::vector<PathNumber> paths_down;
  std::vector<QpNumber> fatal;

  ChannelAdapter adapter;
  std::vector<std::byte> memory;
  Stag tag{};
  std::vector<std::byte> outgoing;

 private:
  std::unique_ptr<Wire> make_wire(std::size_t i) {
    const std::uint64_t port = 0x0200'0000'0000 + i;
    switch (i % 4) {
      case 0:
        return std::make_unique<BridgeWire>(random_, port);
      case 1:
        return std::make_unique<LoopbackWire>(random_, port);
      case 2:
        return std::make_unique<NetworkWire>(random_, port);
      default:
        return std::make_unique<SocketWire>(*socket_, random_, port);
    }
  }

  /// A new life of the peer, once its link is up at both ends and the program has noticed the end of the old one.
  void begin_life(std::size_t i) {
    Peer& peer = peers[i];
    if (!peer.wire->program().up() || !peer.wire->peer().up()) return;
    const bool old_one_lives = peer.program_number.value != 0 && !adapter.in_error(peer.program_number);
    if (old_one_lives) return;
    if (peer.program_number.value != 0) REQUIRE(adapter.destroy_queue_pair(peer.program_number) == Status::ok);
    peer.program_number =
        adapter
            .create_queue_pair(
                {.domain = domain_, .send_completions = completions_, .receive_completions = completions_})
            .value();
    peer.end = std::make_unique<Endpoint>(peer.wire->peer(), patient(), random_, QueuePairAttributes{});
    QueuePairPeer to{peer.end->number, 100, 200};
    to.path = peer.path;
    REQUIRE(adapter.connect(peer.program_number, to) == Status::ok);
    REQUIRE(peer.end->adapter.connect(peer.end->number, {peer.program_number, 200, 100}) == Status::ok);
    ++peer.lives;
    peer.added_before = word_of(i);
    peer.posted = peer.completed = peer.receives = peer.received = peer.sent = peer.sent_completed = 0;
  }

  void work(std::size_t i) {
    Peer& peer = peers[i];
    if (peer.end == nullptr) return begin_life(i);
    Endpoint& end = *peer.end;
    const RemoteAddress share{adapter.region_address(tag) + i * kShare, tag};
    while (peer.posted - peer.completed < 2) {
      // Adds and writes in turn; what is written says whose it is and when.
      const std::uint64_t id = peer.posted;
      if (id % 2 == 0) {
        REQUIRE(post(end, add_request(end, id, 0, 1, {share.address + kWord, tag})) == Status::ok);
      } else {
        const auto bytes = pattern(kMessage, i << 32U | id);
        end.fill(kShare, bytes);
        REQUIRE(post(end, write_request(id, end.segment(kShare, kMessage), share)) == Status::ok);
      }
      ++peer.posted;
    }
    while (peer.receives - peer.received < 4)
      REQUIRE(end.receive(1'000'000 + peer.receives++, 8192, kMessage) == Status::ok);
    if (peer.sent == peer.sent_completed) {
      const auto bytes = static_cast<std::uint32_t>(kMessage);
      REQUIRE(adapter.post_send(peer.program_number, send_request(i, {outgoing.data(), bytes, outgoing_tag_})) ==
              Status::ok);
      ++peer.sent;
    }
    for (const Completion& done : end.take()) {
      INFO("peer " << i);
      REQUIRE(done.status == CompletionStatus::success);
      if (done.receive) {
        REQUIRE(done.id == 1'000'000 + peer.received++);
        continue;
      }
      REQUIRE(done.id == peer.completed++);
      if (done.id % 2 == 0) REQUIRE(word(end, 0) == peer.added_before + done.id / 2);
      if (done.id % 2 == 1) {
        REQUIRE(
            std::ranges::equal(pattern(kMessage, i << 32U | done.id), std::span(memory).subspan(i * kShare, kMessage)));
      }
    }
  }

  /// Of the program's own sends.
  void take(const Completion& done) {
    Peer& peer = peers[done.id];
    if (done.queue_pair != peer.program_number || peer.end == nullptr) return;  // of a life that is over
    INFO("peer " << done.id);
    REQUIRE(done.status == CompletionStatus::success);
    ++peer.sent_completed;
  }

  ProtectionDomain domain_{};
  CqNumber completions_{};
  Stag outgoing_tag_{};
  Time now_{};
};

}  // namespace

TEST_CASE("one program with 64 peers: one dies every round, the other 63 lose nothing, tags of private memory live on",
          "[fabric][adapter][link][paths]") {
  Program program;
  const auto everyone_works = [&program](std::uint64_t requests) {
    std::array<std::uint64_t, kPeers> goal{};
    std::array<std::uint64_t, kPeers> sent_goal{};
    for (std::size_t i = 0; i < kPeers; ++i) {
      goal[i] = program.peers[i].completed + requests;
      sent_goal[i] = program.peers[i].sent_completed + requests;
    }
    const auto reached = [&] {
      for (std::size_t i = 0; i < kPeers; ++i) {
        const Peer& peer = program.peers[i];
        if (peer.end == nullptr || peer.completed < goal[i] || peer.sent_completed < sent_goal[i]) return false;
      }
      return true;
    };
    for (int steps = 0; !reached(); ++steps) {
      REQUIRE(steps < 50'000);
      program.step();
    }
  };
  everyone_works(3);
  SeededRandom random(17);
  std::array<std::uint64_t, kPeers> kills{};
  for (int round = 0; round < 8; ++round) {
    const auto victim = static_cast<std::size_t>(round % 4 + 4 * static_cast<int>(random.below(kPeers / 4)));
    INFO("round " << round << ", victim " << victim);
    ++kills[victim];
    program.paths_down.clear();
    program.fatal.clear();
    const Peer& dead = program.peers[victim];
    const PathNumber path = dead.path;
    const QpNumber queue_pair = dead.program_number;
    program.check_word(victim);
    program.kill(victim);
    program.peers[victim].completed = program.peers[victim].sent_completed = 0;
    everyone_works(3);
    // One path went down, with one queue pair.
    CHECK(program.paths_down == std::vector{path});
    CHECK(program.fatal == std::vector{queue_pair});
    CHECK(program.adapter.table().find(program.tag) != nullptr);
  }
  for (std::size_t i = 0; i < kPeers; ++i) {
    program.check_word(i);
    CHECK(program.peers[i].lives == 1 + kills[i]);
  }
  CHECK(std::ranges::count_if(kills, [](std::uint64_t count) { return count > 0; }) >= 4);
  CHECK(program.adapter.counters().access_refused == 0);
}

}  // namespace splitnic::fabric::test::many_peers_test
