#include "fabric/verbs/connection.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "link_fixtures.h"
#include "verbs_misuse.h"

// Again last, as in the fixtures.

// Connections between programs: on every link, with its losses, copies and delays.
namespace splitnic::verbs::test::verbs_connection_test {
namespace {

using enum CompletionStatus;
using State = ConnectionState;
using Event = ConnectionEventKind;

constexpr ServiceNumber kService{0x0106'1234};

std::vector<std::byte> bytes_of(const char* text) {
  const auto bytes = std::as_bytes(std::span(text, std::char_traits<char>::length(text)));
  return {bytes.begin(), bytes.end()};
}
bool says(const ConnectionInfo& info, const char* text) {
  return std::ranges::equal(info.data.bytes(), bytes_of(text));
}

/// A program with a context on one end of a link.
struct Program {
  Program(fabric::CellLink& link, RandomSource& random) : memory(4096) {
    ContextOptions options;
    options.random = &random;
    options.port_address = link.port_address();
    options.adapter.ack_timeout = milliseconds(2);
    options.adapter.retry_count = 100;
    context = made(Context::open(options));
    path = made(context.add_path(std::shared_ptr<fabric::CellLink>(std::shared_ptr<void>{}, &link)));
    ConnectionOptions quick;
    quick.repeat_min = milliseconds(2);
    quick.repeat_max = milliseconds(10);
    quick.answer_limit = milliseconds(500);
    quick.disconnect_limit = milliseconds(500);
    connections = made(Connections::open(context, quick));
    domain = made(context.allocate_domain());
    completions = made(context.create_completion_queue(256));
    region = made(domain.register_memory(memory, kEverything));
  }
  QueuePair queue_pair() {
    QueuePairOptions shape;
    shape.send_completions = shape.receive_completions = &completions;
    return made(domain.create_queue_pair(shape));
  }
  std::vector<Event> events() {
    std::array<ConnectionEvent, 64> some;
    std::vector<Event> kinds;
    for (const auto& event : std::span(some).first(connections.poll_events(some))) kinds.push_back(event.kind);
    return kinds;
  }
  std::optional<Completion> completion() {
    std::array<Completion, 1> one;
    return completions.poll(one) == 1 ? std::optional(one[0]) : std::nullopt;
  }

  std::vector<std::byte> memory;
  Context context;
  Path path;
  Connections connections;
  ProtectionDomain domain;
  CompletionQueue completions;
  MemoryRegion region;
};

/// A client and a server.
template <class Links>
struct Programs {
  Programs() : client(links.end(0), random), server(links.end(1), random) {
    until([this] { return client.path.up() && server.path.up(); });
  }
  void step() {
    links.step();
    client.context.poll(links.now());
    server.context.poll(links.now());
  }
  template <class Done>
  void until(Done done, int steps = 300'000) {
    for (int i = 0; !done(); ++i) {
      REQUIRE(i < steps);
      step();
    }
  }

  SeededRandom random{7};
  Links links;
  Program client;
  Program server;
};

}  // namespace

TEMPLATE_TEST_CASE("verbs: connections are requested, accepted, used and ended in order, on every link",
                   "[fabric][verbs][connection]", SPLITNIC_EVERY_LINK) {
  Programs<TestType> both;
  Program& client = both.client;
  Program& server = both.server;
  Listener listener = made(server.connections.listen(kService));
  // One after the other, so that the losses of a bad link hit every message of the set-up.
  for (int round = 0; round < 5; ++round) {
    QueuePair asking = client.queue_pair();
    QueuePair answering = server.queue_pair();
    Connection to_server = made(client.connections.connect(client.path, kService, asking, bytes_of("hello")));
    std::optional<Connection> to_client;
    both.until([&] { return (to_client = listener.take()).has_value(); });
    CHECK(to_client->state() == State::requested);
    CHECK(says(to_client->info(), "hello"));
    CHECK(to_client->info().peer.queue_pair == asking.address().queue_pair);
    REQUIRE(answering.post_receive(receive(3, server.region.segment(0, 64))) == Status::ok);
    REQUIRE(to_client->accept(answering, bytes_of("welcome")) == Status::ok);
    both.until([&] { return to_server.state() == State::established && to_client->state() == State::established; });
    CHECK(says(to_server.info(), "welcome"));

    const auto bytes = pattern(64, static_cast<std::uint64_t>(round));
    std::ranges::copy(bytes, client.memory.begin());
    REQUIRE(asking.post_send(send(4, {client.region.segment(0, 64)})) == Status::ok);
    std::optional<Completion> sent;
    std::optional<Completion> got;
    both.until([&] {
      if (!sent) sent = client.completion();
      if (!got) got = server.completion();
      return sent && got;
    });
    CHECK(sent->status == success);
    CHECK(got->status == success);
    CHECK(std::ranges::equal(std::span(server.memory).first(64), bytes));

    Connection& first = round % 2 == 0 ? to_server : *to_client;
    Connection& other = round % 2 == 0 ? *to_client : to_server;
    REQUIRE(first.disconnect(bytes_of("bye")) == Status::ok);
    both.until([&] { return first.state() == State::ended && other.state() == State::ended; });
    CHECK(first.info().ending == Event::disconnected);
    CHECK(other.info().ending == Event::disconnected);
    CHECK(says(other.info(), "bye"));
    CHECK(asking.state() == QueuePairState::error);
    CHECK(answering.state() == QueuePairState::error);
    CHECK(client.events() == std::vector{Event::established, Event::disconnected});
    CHECK(server.events() == std::vector{Event::request, Event::established, Event::disconnected});
  }
  CHECK(server.connections.counters().requests == 5);
  CHECK(client.connections.counters().established == 5);
  CHECK(server.connections.counters().established == 5);
  CHECK_FALSE(listener.take().has_value());
}

TEMPLATE_TEST_CASE("verbs: a request is rejected by the program, or because nobody listens, on every link",
                   "[fabric][verbs][connection]", SPLITNIC_EVERY_LINK) {
  Programs<TestType> both;
  QueuePair asking = both.client.queue_pair();
  const auto rejected = [&](ServiceNumber service, auto decide) {
    const Connection connection = made(both.client.connections.connect(both.client.path, service, asking));
    both.until([&] {
      decide();
      return connection.state() == State::ended;
    });
    CHECK(connection.info().ending == Event::rejected);
    return connection.info();
  };
  CHECK(rejected(kService, [] {}).reason == RejectReason::no_listener);
  Listener listener = made(both.server.connections.listen(kService));
  const ConnectionInfo info = rejected(kService, [&] {
    if (auto request = listener.take()) CHECK(request->reject(bytes_of("full")) == Status::ok);
  });
  CHECK(info.reason == RejectReason::by_program);
  CHECK(says(info, "full"));
  // The queue pair was not touched.
  CHECK(asking.state() == QueuePairState::reset);
}

TEMPLATE_TEST_CASE("verbs: a peer that dies is told from one that disconnects, on every link",
                   "[fabric][verbs][connection]", SPLITNIC_EVERY_LINK) {
  Programs<TestType> both;
  Listener listener = made(both.server.connections.listen(kService));
  QueuePair asking = both.client.queue_pair();
  QueuePair answering = both.server.queue_pair();
  Connection to_server = made(both.client.connections.connect(both.client.path, kService, asking));
  std::optional<Connection> to_client;
  both.until([&] { return (to_client = listener.take()).has_value(); });
  REQUIRE(to_client->accept(answering) == Status::ok);
  both.until([&] { return to_server.state() == State::established && to_client->state() == State::established; });
  both.links.restart(1);  // the server's process starts anew
  both.until([&] { return to_server.state() == State::ended && to_client->state() == State::ended; });
  CHECK(to_server.info().ending == Event::lost);
  CHECK(to_client->info().ending == Event::lost);
  CHECK(asking.state() == QueuePairState::error);
  // The next life's connection.
  both.until([&] { return both.client.path.up() && both.server.path.up(); });
  QueuePair again = both.client.queue_pair();
  Connection renewed = made(both.client.connections.connect(both.client.path, kService, again));
  both.until([&] { return (to_client = listener.take()).has_value(); });
  QueuePair fresh = both.server.queue_pair();
  REQUIRE(to_client->accept(fresh) == Status::ok);
  both.until([&] { return renewed.state() == State::established; });
}

namespace {

struct WithConnections : Pair {
  WithConnections() : at_a(made(Connections::open(a.context))), at_b(made(Connections::open(b.context))) {}
  Connections at_a;
  Connections at_b;
};

}  // namespace

TEST_CASE("verbs: a connection holds its queue pair, and its handle's end is the orderly one",
          "[fabric][verbs][connection]") {
  WithConnections pair;
  Listener listener = made(pair.at_b.listen(kService));
  QueuePair asking = pair.a.another(plain());
  const QpNumber number = asking.address().queue_pair;
  Connection to_b = made(pair.at_a.connect(pair.a.path, kService, asking));
  asking = QueuePair();
  pair.run();
  std::optional<Connection> to_a = listener.take();
  REQUIRE(to_a.has_value());
  CHECK(to_a->info().peer.queue_pair == number);
  QueuePair answering = pair.b.another(plain());
  REQUIRE(to_a->accept(answering) == Status::ok);
  pair.run();
  CHECK(to_b.state() == State::established);
  // With the handles of the connection management, and of the context: the connection is there all the same.
  pair.at_a = Connections();
  pair.run();
  CHECK(to_b.state() == State::established);
  to_b = Connection();
  pair.run();
  CHECK(to_a->info().ending == Event::disconnected);
  CHECK(answering.state() == QueuePairState::error);
  // Nobody answers at a now: its connection management is gone.
  pair.at_a = made(Connections::open(pair.a.context));
  to_a.reset();
  listener = Listener();
  CHECK(made(pair.at_b.listen(kService)).service() == kService);
}

TEST_CASE("verbs: a path that is given up loses its connections, and the peer may connect anew",
          "[fabric][verbs][connection]") {
  WithConnections pair;
  Listener listener = made(pair.at_b.listen(kService));
  QueuePair asking = pair.a.another(plain());
  Connection to_b = made(pair.at_a.connect(pair.a.path, kService, asking));
  pair.run();
  Connection to_a = std::move(*listener.take());
  pair.a.path = Path();
  CHECK(to_b.info().ending == Event::unreachable);
  pair.a.path = made(pair.a.context.add_path(pair.bridges.end(0)));
  for (int i = 0; i < 10'000 && !(pair.a.path.up() && to_a.state() == State::ended); ++i) pair.step(milliseconds(1));
  CHECK(to_a.info().ending == Event::unreachable);
  QueuePair answering = pair.b.another(plain());
  CHECK(to_a.accept(answering) == Status::bad_state);
}

TEST_CASE("verbs: queue pairs of one context connect over its loop-back", "[fabric][verbs][connection][path]") {
  Bridges bridges;
  End end(bridges, 0, plain(), DomainRules::verbs);
  auto ends = made(end.context.add_loopback());
  Connections connections = made(Connections::open(end.context));
  Listener listener = made(connections.listen(kService));
  Time now{};
  const auto run = [&] {
    for (int i = 0; i < 200; ++i) end.context.poll(now += milliseconds(1));
  };
  run();
  QueuePair other = end.another(plain());
  Connection asking = made(connections.connect(ends[0], kService, end.queue_pair));
  run();
  Connection answering = std::move(*listener.take());
  CHECK(answering.info().path == ends[1].number());
  REQUIRE(answering.accept(other) == Status::ok);
  run();
  CHECK(asking.state() == State::established);
  CHECK(answering.state() == State::established);
  end.fill(0, pattern(50, 3));
  REQUIRE(other.post_receive(receive(1, end.region.segment(100, 50))) == Status::ok);
  REQUIRE(end.queue_pair.post_send(send(2, {end.region.segment(0, 50)})) == Status::ok);
  run();
  CHECK(end.holds(100, pattern(50, 3)));
}

TEST_CASE("verbs, misuse: connections", "[fabric][verbs][connection][misuse]") {
  WithConnections pair;
  Connections null;
  QueuePair own = pair.a.another(plain());
  QueuePair foreign = pair.b.another(plain());
  QueuePairOptions datagrams;
  datagrams.acknowledged = false;
  datagrams.datagram = true;
  QueuePair without_peer = pair.a.another(datagrams);
  Connection no_connection;
  const std::vector<std::byte> too_long(kMaxRequestPrivateBytes + 1);
  const auto connect = [&](const Path& path, ServiceNumber service, const QueuePair& queue_pair,
                           std::span<const std::byte> data = {}) {
    return refusal(pair.at_a.connect(path, service, queue_pair, data));
  };
  const auto open = [&](auto change) {
    ConnectionOptions options;
    change(options);
    Context context = made(Context::open());
    return refusal(Connections::open(context, options));
  };
  Listener listener = made(pair.at_a.listen(kService));
  check({
      {"open, null context", refusal(Connections::open(Context())), kBad},
      {"open, twice", refusal(Connections::open(pair.a.context)), Status::in_use},
      {"open, no repetition", open([](auto& o) { o.repeat_min = Duration::zero(); }), kBad},
      {"open, for ever", open([](auto& o) { o.rest = Duration::max(); }), kBad},
      {"open, too many", open([](auto& o) { o.max_connections = SIZE_MAX; }), kBad},
      {"open, none", open([](auto& o) { o.max_connections = 0; }), Status::ok},
      {"listen, null", refusal(null.listen(kService)), kBad},
      {"listen, service 0", refusal(pair.at_a.listen({})), kBad},
      {"listen, no backlog", refusal(pair.at_a.listen(ServiceNumber{5}, 0)), Status::bad_length},
      {"listen, twice", refusal(pair.at_a.listen(kService)), Status::in_use},
      {"connect, null", refusal(null.connect(pair.a.path, kService, own)), kBad},
      {"connect, null path", connect(Path(), kService, own), kBad},
      {"connect, foreign path", connect(pair.b.path, kService, own), kBad},
      {"connect, service 0", connect(pair.a.path, {}, own), kBad},
      {"connect, null queue pair", connect(pair.a.path, kService, QueuePair()), kBad},
      {"connect, foreign queue pair", connect(pair.a.path, kService, foreign), kBad},
      {"connect, datagrams", connect(pair.a.path, kService, without_peer), kBad},
      {"connect, connected", connect(pair.a.path, kService, pair.a.queue_pair), Status::bad_state},
      {"connect, long", connect(pair.a.path, kService, own, too_long), Status::bad_length},
      {"accept, null", no_connection.accept(own), kBad},
      {"reject, null", no_connection.reject(), kBad},
      {"disconnect, null", no_connection.disconnect(), kBad},
  });
  CHECK(no_connection.state() == State::ended);
  CHECK(no_connection.number() == ConnectionNumber{});
  CHECK(null.counters().messages_sent == 0);
  CHECK_FALSE(Listener().take().has_value());
  CHECK(Listener().service() == ServiceNumber{});

  Connection to_b = made(pair.at_b.connect(pair.b.path, kService, foreign));
  pair.run();
  Connection request = std::move(*listener.take());
  QueuePairOptions unacknowledged = plain();
  unacknowledged.acknowledged = false;
  unacknowledged.memory_requests = false;
  QueuePair other_kind = pair.a.another(unacknowledged);
  check({
      {"accept, null queue pair", request.accept(QueuePair()), kBad},
      {"accept, foreign queue pair", request.accept(foreign), kBad},
      {"accept, datagrams", request.accept(without_peer), kBad},
      {"accept, the other kind", request.accept(other_kind), kBad},
      {"accept, connected", request.accept(pair.a.queue_pair), Status::bad_state},
      {"accept, long", request.accept(own, std::vector<std::byte>(kMaxPrivateBytes + 1)), Status::bad_length},
      {"disconnect, not established", request.disconnect(), Status::bad_state},
      {"accept", request.accept(own), Status::ok},
      {"accept, twice", request.accept(own), Status::bad_state},
      {"reject, accepted", request.reject(), Status::bad_state},
  });
  pair.run();
  pair.next_epoch();
  CHECK(to_b.info().ending == Event::lost);
}

TEST_CASE("verbs: small cells leave less room for private data", "[fabric][verbs][connection]") {
  Bridges bridges;
  ContextOptions options;
  options.random = &bridges.random();
  options.adapter.cell_payload_bytes = 64;
  Context context = made(Context::open(options));
  auto ends = made(context.add_loopback());
  Connections connections = made(Connections::open(context));
  Time now{};
  for (int i = 0; i < 200; ++i) context.poll(now += milliseconds(1));
  ProtectionDomain domain = made(context.allocate_domain());
  CompletionQueue queue = made(context.create_completion_queue(256));
  QueuePairOptions shape;
  shape.send_completions = shape.receive_completions = &queue;
  QueuePair queue_pair = made(domain.create_queue_pair(shape));
  CHECK(refusal(connections.connect(ends[0], kService, queue_pair)) == Status::bad_length);
}

TEST_CASE("verbs: connection management takes one of each object, and gives it back", "[fabric][verbs][connection]") {
  Bridges bridges;
  ContextOptions options;
  options.random = &bridges.random();
  options.adapter.max_queue_pairs = options.adapter.max_regions = options.adapter.max_completion_queues = 1;
  Context context = made(Context::open(options));
  for (int i = 0; i < 3; ++i) {
    const Connections connections = made(Connections::open(context));
    CHECK(refusal(context.create_completion_queue(1)) == Status::no_resources);
  }
  CompletionQueue queue = made(context.create_completion_queue(1));
  CHECK(refusal(Connections::open(context)) == Status::no_resources);
}

}  // namespace splitnic::verbs::test::verbs_connection_test
