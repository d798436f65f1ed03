#include "fabric/connect/connection_manager.h"

#include <catch2/catch.hpp>

#include "fabric/connect/connection_endpoint.h"
#include "link_fixtures.h"

// Again last, as in the fixtures.

// Dialogues: a connection manager, and a peer that says whatever the test wants.
namespace splitnic::fabric::connection_manager_test {
namespace {

using Kind = ConnectionMessageKind;
using State = ConnectionState;
using Event = ConnectionEventKind;
using std::chrono::milliseconds;

constexpr ServiceNumber kService{0x1234};
constexpr ConnectionNumber kPeer{0x7777};

std::vector<std::byte> bytes_of(const char* text) {
  const auto bytes = std::as_bytes(std::span(text, std::char_traits<char>::length(text)));
  return {bytes.begin(), bytes.end()};
}

ConnectionOptions quick() {
  ConnectionOptions options;
  options.max_connections = 4;
  options.repeat_min = milliseconds(10);
  options.repeat_max = milliseconds(40);
  options.answer_limit = milliseconds(200);
  options.decision_limit = milliseconds(1000);
  options.disconnect_limit = milliseconds(100);
  options.rest = milliseconds(500);
  return options;
}

class Dialogue {
 public:
  Dialogue()
      : adapter(links_.end(0), {}, random_),
        peer_adapter_(links_.end(1), {}, random_),
        manager(adapter, random_, quick()),
        peer_(ConnectionEndpoint::make(peer_adapter_)) {
    REQUIRE(peer_ != nullptr);
    domain_ = adapter.allocate_domain();
    completions_ = adapter.create_completion_queue(64);
    for (int i = 0; i < 1000 && !(links_.end(0).up() && links_.end(1).up()); ++i) step();
    REQUIRE((links_.end(0).up() && links_.end(1).up()));
  }

  void step(Duration by = std::chrono::microseconds(100)) {
    now_ += by;
    links_.step();
    adapter.poll(now_);
    manager.poll(now_);
    adapter.poll(now_);
    peer_adapter_.poll(now_);
    peer_->receive([this](std::span<const std::byte> bytes, PathNumber, QpNumber source) {
      REQUIRE(source == kConnectionQueuePair);
      const auto message = decode_connection(bytes);
      REQUIRE(message.has_value());
      heard.push_back(*message);
    });
    peer_adapter_.poll(now_);
  }
  void run(Duration time = milliseconds(1)) {
    const Duration by = std::max<Duration>(std::chrono::microseconds(100), time / 200);
    for (const Time until = now_ + time; now_ < until;) step(by);
  }
  void say(const ConnectionMessage& message) {
    ConnectionMessageBytes bytes = encode_connection(message);
    say(bytes.span());
  }
  void say(std::span<std::byte> bytes) {
    REQUIRE(peer_->send(PathNumber{1}, bytes) == Status::ok);
    run();
  }
  ConnectionMessage request(ConnectionNumber from = kPeer, const char* text = "") {
    ConnectionMessage message;
    message.kind = Kind::request;
    message.sender = from;
    message.end = {QpNumber{0x500}, 99, 2, 1, true};
    message.service = kService;
    message.data = PrivateData::of(bytes_of(text)).value();
    return message;
  }
  ConnectionMessage about(Kind kind, ConnectionNumber theirs, ConnectionNumber from = kPeer) {
    ConnectionMessage message;
    message.kind = kind;
    message.sender = from;
    message.receiver = theirs;
    if (kind == Kind::reject) message.reason = RejectReason::by_program;
    if (kind == Kind::reply) message.end = {QpNumber{0x600}, 77, 3, 1, true};
    return message;
  }
  /// What the peer has heard since the last call: one message of this kind.
  ConnectionMessage one(Kind kind) {
    REQUIRE(heard.size() == 1);
    REQUIRE(heard[0].kind == kind);
    const ConnectionMessage message = heard[0];
    heard.clear();
    return message;
  }
  ConnectionEvent event(Event kind) {
    std::array<ConnectionEvent, 4> events;
    REQUIRE(manager.poll_events(events) == 1);
    REQUIRE(events[0].kind == kind);
    return events[0];
  }
  [[nodiscard]] bool silent() {
    std::array<ConnectionEvent, 1> events;
    return heard.empty() && manager.poll_events(events) == 0;
  }
  ConnectionEnd queue_pair(bool acknowledged = true) {
    QueuePairAttributes attributes;
    attributes.domain = domain_;
    attributes.send_completions = attributes.receive_completions = completions_;
    attributes.acknowledged = acknowledged;
    return {adapter.create_queue_pair(attributes).value(), 5, 4, 4, acknowledged};
  }
  ConnectionNumber connect(const ConnectionEnd& own) {
    const auto made = manager.connect(PathNumber{1}, kService, own, {});
    REQUIRE(made.has_value());
    run();
    return *made;
  }
  /// A connection that the manager has requested, established.
  ConnectionNumber established(const ConnectionEnd& own) {
    const ConnectionNumber number = connect(own);
    one(Kind::request);
    say(about(Kind::reply, number));
    one(Kind::ready);
    event(Event::established);
    return number;
  }
  /// A request of the peer that the program has taken.
  ConnectionNumber taken() {
    if (!listening_) REQUIRE(manager.listen(kService, 2) == Status::ok);
    listening_ = true;
    say(request());
    event(Event::request);
    return manager.take_request(kService).value();
  }
  State state(ConnectionNumber number) { return manager.info(number).value().state; }
  QueuePairState of(const ConnectionEnd& end) { return adapter.state(end.queue_pair).value(); }

 private:
  SeededRandom random_{3};
  test::LoopbackLinks links_;

 public:
  ChannelAdapter adapter;

 private:
  ChannelAdapter peer_adapter_;

 public:
  ConnectionManager manager;
  std::vector<ConnectionMessage> heard;

 private:
  std::unique_ptr<ConnectionEndpoint> peer_;
  ProtectionDomain domain_{};
  CqNumber completions_{};
  Time now_{};
  bool listening_ = false;
};

}  // namespace

TEST_CASE("a request is repeated, less and less often, until the peer counts as unreachable", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const auto text = bytes_of("hello");
  const ConnectionNumber number = talk.manager.connect(PathNumber{1}, kService, own, text).value();
  talk.run(milliseconds(190));
  CHECK(talk.state(number) == State::connecting);
  // After 10, 20, 40, 40, 40 .. ms, a quarter more or less.
  CHECK(talk.heard.size() >= 5);
  CHECK(talk.heard.size() <= 8);
  for (const ConnectionMessage& message : talk.heard) {
    CHECK(message.kind == Kind::request);
    CHECK(message.sender == number);
    CHECK(message.service == kService);
    CHECK(message.end == own);
    CHECK(std::ranges::equal(message.data.bytes(), text));
  }
  CHECK(talk.manager.counters().repeated == talk.heard.size() - 1);
  talk.heard.clear();
  talk.run(milliseconds(20));
  CHECK(talk.event(Event::unreachable).connection == number);
  CHECK(talk.state(number) == State::ended);
  CHECK(talk.of(own) == QueuePairState::reset);
  talk.heard.clear();
  talk.run(milliseconds(200));
  CHECK(talk.silent());
}

TEST_CASE("a reply connects the queue pair, and is answered as often as it comes", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.connect(own);
  CHECK(talk.one(Kind::request).sender == number);
  ConnectionMessage reply = talk.about(Kind::reply, number);
  reply.data = PrivateData::of(bytes_of("welcome")).value();
  talk.say(reply);
  CHECK(talk.one(Kind::ready).receiver == kPeer);
  const ConnectionEvent event = talk.event(Event::established);
  CHECK(event.data == reply.data);
  CHECK(event.path == PathNumber{1});
  CHECK(talk.of(own) == QueuePairState::ready_to_send);
  CHECK(talk.manager.info(number)->peer == reply.end);
  CHECK(talk.manager.info(number)->data == reply.data);
  talk.say(reply);  // ready was lost
  CHECK(talk.one(Kind::ready).sender == number);
  CHECK(talk.manager.counters().duplicates == 1);
  CHECK(talk.manager.counters().established == 1);
  talk.run(milliseconds(300));
  CHECK(talk.silent());  // nothing is due any more
}

TEST_CASE("a request that waits for the program is waited for longer, and not for ever", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionNumber number = talk.connect(talk.queue_pair());
  talk.say(talk.about(Kind::received, number));
  talk.run(milliseconds(900));
  CHECK(talk.state(number) == State::connecting);
  talk.heard.clear();
  talk.run(milliseconds(150));
  CHECK(talk.event(Event::unreachable).connection == number);
  REQUIRE_FALSE(talk.heard.empty());
  CHECK(talk.heard.back().kind == Kind::reject);  // the peer need not decide any more
  CHECK(talk.heard.back().reason == RejectReason::timeout);
}

TEST_CASE("a listener takes requests once, and its answer as often as they are repeated", "[fabric][connection]") {
  Dialogue talk;
  REQUIRE(talk.manager.listen(kService, 2) == Status::ok);
  talk.say(talk.request(kPeer, "who"));
  const ConnectionEvent event = talk.event(Event::request);
  CHECK(event.service == kService);
  CHECK(std::ranges::equal(event.data.bytes(), bytes_of("who")));
  talk.say(talk.request(kPeer, "who"));
  CHECK(talk.one(Kind::received).receiver == kPeer);
  const ConnectionNumber number = talk.manager.take_request(kService).value();
  CHECK(number == event.connection);
  CHECK_FALSE(talk.manager.take_request(kService).has_value());
  CHECK(talk.manager.info(number)->peer.queue_pair == QpNumber{0x500});

  const ConnectionEnd own = talk.queue_pair();
  REQUIRE(talk.manager.accept(number, own, bytes_of("you")) == Status::ok);
  CHECK(talk.of(own) == QueuePairState::ready_to_send);
  talk.run();
  const ConnectionMessage reply = talk.one(Kind::reply);
  CHECK(reply.end == own);
  CHECK(std::ranges::equal(reply.data.bytes(), bytes_of("you")));
  talk.say(talk.request(kPeer, "who"));
  CHECK(talk.one(Kind::reply) == reply);
  CHECK(talk.state(number) == State::accepting);
  talk.say(talk.about(Kind::ready, number));
  CHECK(talk.event(Event::established).connection == number);
  talk.say(talk.about(Kind::ready, number));
  talk.say(talk.request(kPeer, "who"));
  CHECK(talk.silent());
  CHECK(talk.manager.counters().requests == 1);
  CHECK(talk.manager.counters().duplicates == 4);
}

TEST_CASE("a reply that nobody answers is repeated, and then the connection is given up", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionNumber number = talk.taken();
  const ConnectionEnd own = talk.queue_pair();
  REQUIRE(talk.manager.accept(number, own, {}) == Status::ok);
  talk.run(milliseconds(190));
  CHECK(talk.heard.size() >= 5);
  CHECK(talk.heard.back().kind == Kind::reply);
  talk.run(milliseconds(20));
  CHECK(talk.heard.back().kind == Kind::reject);
  CHECK(talk.heard.back().reason == RejectReason::timeout);
  CHECK(talk.event(Event::unreachable).connection == number);
  CHECK(talk.of(own) == QueuePairState::error);
}

TEST_CASE("a rejected request stays rejected, however late its copies come", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionNumber number = talk.taken();
  REQUIRE(talk.manager.reject(number, bytes_of("no")) == Status::ok);
  talk.run();
  const ConnectionMessage reject = talk.one(Kind::reject);
  CHECK(reject.reason == RejectReason::by_program);
  CHECK(reject.receiver == kPeer);
  talk.manager.release(number);
  CHECK_FALSE(talk.manager.info(number).has_value());
  talk.run(milliseconds(400));
  talk.say(talk.request());
  CHECK(talk.one(Kind::reject) == reject);
  talk.run(milliseconds(200));  // beyond the rest: the peer may use its number again
  talk.say(talk.request());
  CHECK(talk.event(Event::request).connection != number);
}

TEST_CASE("requests that nobody can take are refused with the reason", "[fabric][connection]") {
  Dialogue talk;
  REQUIRE(talk.manager.start() == Status::ok);
  talk.say(talk.request());
  const ConnectionMessage none = talk.one(Kind::reject);
  CHECK(none.reason == RejectReason::no_listener);
  CHECK(none.sender == ConnectionNumber{});
  CHECK(talk.manager.counters().refused_no_listener == 1);

  REQUIRE(talk.manager.listen(kService, 2) == Status::ok);
  for (std::uint32_t i = 1; i <= 3; ++i) talk.say(talk.request(ConnectionNumber{i}));
  CHECK(talk.heard.empty());  // the third one is dropped, and repeated by an honest peer
  CHECK(talk.manager.counters().dropped_backlog == 1);
  std::vector<ConnectionNumber> all;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    talk.say(talk.request(ConnectionNumber{i}));
    while (const auto next = talk.manager.take_request(kService)) all.push_back(*next);
  }
  CHECK(all.size() == 4);
  talk.heard.clear();
  talk.say(talk.request(ConnectionNumber{5}));
  CHECK(talk.one(Kind::reject).reason == RejectReason::no_resources);
  CHECK(talk.manager.counters().refused_no_resources == 1);
  CHECK(talk.manager.connect(PathNumber{1}, kService, talk.queue_pair(), {}).error() == Status::no_resources);
  // The memory of a request that has ended makes room for a new one.
  talk.manager.release(all[0]);
  talk.run();
  talk.heard.clear();
  talk.say(talk.request(ConnectionNumber{6}));
  CHECK(talk.heard.empty());
  CHECK(talk.manager.take_request(kService).has_value());
}

TEST_CASE("a listener that goes rejects what waits, and its copies", "[fabric][connection]") {
  Dialogue talk;
  REQUIRE(talk.manager.listen(kService, 2) == Status::ok);
  CHECK(talk.manager.listen(kService, 2) == Status::in_use);
  talk.say(talk.request());
  REQUIRE(talk.manager.stop_listening(kService) == Status::ok);
  talk.run();
  CHECK(talk.one(Kind::reject).reason == RejectReason::no_listener);
  CHECK(talk.silent());
  // A copy gets the same answer, although somebody else listens by now.
  REQUIRE(talk.manager.listen(kService, 2) == Status::ok);
  talk.say(talk.request());
  CHECK(talk.one(Kind::reject).reason == RejectReason::no_listener);
  CHECK(talk.silent());
  REQUIRE(talk.manager.stop_listening(kService) == Status::ok);
  CHECK(talk.manager.stop_listening(kService) == Status::bad_argument);
}

TEST_CASE("a request that its sender gave up is not waited for any more", "[fabric][connection]") {
  Dialogue talk;
  REQUIRE(talk.manager.listen(kService, 2) == Status::ok);
  talk.say(talk.request());
  const ConnectionNumber waiting = talk.event(Event::request).connection;
  talk.say(talk.about(Kind::reject, waiting));
  CHECK_FALSE(talk.manager.take_request(kService).has_value());
  // One that the program has taken ends for it.
  talk.say(talk.request(ConnectionNumber{8}));
  const ConnectionNumber taken = talk.manager.take_request(kService).value();
  talk.event(Event::request);
  talk.say(talk.about(Kind::reject, taken, ConnectionNumber{8}));
  CHECK(talk.event(Event::rejected).reason == RejectReason::by_program);
  CHECK(talk.manager.accept(taken, talk.queue_pair(), {}) == Status::bad_state);
}

TEST_CASE("an orderly end is repeated until it is answered; without an answer the peer is lost",
          "[fabric][connection]") {
  Dialogue talk;
  for (const bool answered : {true, false}) {
    const ConnectionEnd own = talk.queue_pair();
    const ConnectionNumber number = talk.established(own);
    REQUIRE(talk.manager.disconnect(number, bytes_of("bye")) == Status::ok);
    CHECK(talk.of(own) == QueuePairState::error);
    talk.run(milliseconds(40));
    REQUIRE(talk.heard.size() >= 2);
    for (const ConnectionMessage& message : talk.heard) {
      CHECK(message.kind == Kind::disconnect_request);
      CHECK(std::ranges::equal(message.data.bytes(), bytes_of("bye")));
    }
    if (answered) talk.say(talk.about(Kind::disconnect_reply, number));
    talk.run(milliseconds(100));
    CHECK(talk.event(answered ? Event::disconnected : Event::lost).connection == number);
    CHECK(talk.manager.info(number)->ending == (answered ? Event::disconnected : Event::lost));
    talk.heard.clear();
    talk.manager.release(number);
  }
}

TEST_CASE("the peer's orderly end ends the queue pair, and is answered as often as it comes", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.established(own);
  ConnectionMessage bye = talk.about(Kind::disconnect_request, number);
  bye.data = PrivateData::of(bytes_of("bye")).value();
  talk.say(bye);
  CHECK(talk.one(Kind::disconnect_reply).receiver == kPeer);
  CHECK(talk.event(Event::disconnected).data == bye.data);
  CHECK(talk.of(own) == QueuePairState::error);
  talk.say(bye);
  talk.one(Kind::disconnect_reply);
  talk.manager.release(number);
  talk.say(bye);  // forgotten, and answered all the same
  CHECK(talk.one(Kind::disconnect_reply).sender == number);
  CHECK(talk.silent());

  // Both ask at the same time.
  const ConnectionEnd second = talk.queue_pair();
  const ConnectionNumber crossing = talk.established(second);
  REQUIRE(talk.manager.disconnect(crossing, {}) == Status::ok);
  talk.say(talk.about(Kind::disconnect_request, crossing));
  CHECK(talk.heard.size() == 2);
  CHECK(talk.event(Event::disconnected).connection == crossing);
}

TEST_CASE("a peer that accepts and ends at once ends the connection, although its reply is lost",
          "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.connect(own);
  talk.one(Kind::request);
  if (GENERATE(false, true)) talk.say(talk.about(Kind::received, number));
  ConnectionMessage bye = talk.about(Kind::disconnect_request, number);
  bye.data = PrivateData::of(bytes_of("bye")).value();
  talk.say(bye);
  CHECK(talk.one(Kind::disconnect_reply).receiver == kPeer);
  CHECK(talk.event(Event::disconnected).data == bye.data);
  CHECK(talk.manager.info(number)->ending == Event::disconnected);
  CHECK(talk.of(own) == QueuePairState::reset);
  talk.say(bye);
  CHECK(talk.one(Kind::disconnect_reply).sender == number);
  talk.say(talk.about(Kind::reply, number));  // was only late
  CHECK(talk.one(Kind::reject).reason == RejectReason::unknown_connection);
  CHECK(talk.manager.counters().dropped_unexpected == 0);
  talk.run(milliseconds(300));
  CHECK(talk.silent());
}

TEST_CASE("a peer that has missed the end of the connection hears of it with its next request",
          "[fabric][connection]") {
  Dialogue talk;
  const ConnectionNumber number = talk.taken();
  REQUIRE(talk.manager.accept(number, talk.queue_pair(), {}) == Status::ok);
  talk.run();
  talk.one(Kind::reply);  // is lost
  REQUIRE(talk.manager.disconnect(number, bytes_of("bye")) == Status::ok);
  talk.run();
  const ConnectionMessage bye = talk.one(Kind::disconnect_request);  // likewise
  talk.say(talk.request());
  CHECK(talk.one(Kind::disconnect_request) == bye);
  talk.run(milliseconds(110));
  CHECK(talk.event(Event::lost).connection == number);
  talk.heard.clear();
  for (const bool released : {false, true}) {
    if (released) talk.manager.release(number);
    talk.say(talk.request());
    const ConnectionMessage reject = talk.one(Kind::reject);
    CHECK(reject.reason == RejectReason::unknown_connection);
    CHECK(reject.sender == number);
    CHECK(reject.receiver == kPeer);
  }
  CHECK(talk.manager.counters().requests == 1);
  CHECK(talk.silent());
}

TEST_CASE("a peer that rejects late, or has forgotten, ends the connection", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.connect(own);
  talk.heard.clear();
  ConnectionMessage reject = talk.about(Kind::reject, number, ConnectionNumber{});
  reject.data = PrivateData::of(bytes_of("busy")).value();
  talk.say(reject);
  const ConnectionEvent event = talk.event(Event::rejected);
  CHECK(event.reason == RejectReason::by_program);
  CHECK(event.data == reject.data);
  CHECK(talk.manager.info(number)->reason == RejectReason::by_program);
  talk.manager.release(number);

  const ConnectionNumber second = talk.established(own);
  talk.say(talk.about(Kind::reject, second));
  talk.event(Event::rejected);
  CHECK(talk.of(own) == QueuePairState::error);

  // A reply for a connection that this end gave up.
  talk.say(talk.about(Kind::reply, ConnectionNumber{12345}));
  CHECK(talk.one(Kind::reject).reason == RejectReason::unknown_connection);
}

TEST_CASE("a queue pair that cannot be connected any more rejects the reply", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.connect(own);
  talk.heard.clear();
  REQUIRE(talk.adapter.modify(own.queue_pair, QueuePairEvent::fail) == Status::ok);
  talk.say(talk.about(Kind::reply, number));
  CHECK(talk.one(Kind::reject).reason == RejectReason::no_queue_pair);
  CHECK(talk.event(Event::rejected).reason == RejectReason::no_queue_pair);
}

TEST_CASE("a path that goes down ends its connections: lost if they were established, else unreachable",
          "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber established = talk.established(own);
  const ConnectionNumber connecting = talk.connect(talk.queue_pair());
  const ConnectionNumber requested = talk.taken();
  talk.manager.path_down(PathNumber{2});
  CHECK(talk.state(established) == State::established);
  talk.manager.path_down(PathNumber{1});
  CHECK(talk.manager.info(established)->ending == Event::lost);
  CHECK(talk.manager.info(connecting)->ending == Event::unreachable);
  CHECK(talk.manager.info(requested)->ending == Event::unreachable);
  CHECK(talk.of(own) == QueuePairState::error);
  std::array<ConnectionEvent, 4> events;
  CHECK(talk.manager.poll_events(events) == 3);
  // The peer's next life may use the numbers of its last one.
  talk.manager.release(requested);
  talk.heard.clear();
  talk.taken();
}

TEST_CASE("malformed, foreign and senseless messages are counted, dropped, and change nothing",
          "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.established(own);
  const ConnectionCounters before = talk.manager.counters();
  const auto malformed = [&](ConnectionFault fault) {
    return talk.manager.counters().dropped_malformed.at(static_cast<std::size_t>(fault));
  };
  ConnectionMessageBytes good = encode_connection(talk.about(Kind::disconnect_request, number));
  struct Change {
    std::size_t offset;
    std::uint8_t to;
    ConnectionFault fault;
  };
  for (const Change change : {Change{0, 2, ConnectionFault::version}, Change{1, 0x17, ConnectionFault::kind},
                              Change{2, 1, ConnectionFault::flags}, Change{3, 1, ConnectionFault::length},
                              Change{12, 5, ConnectionFault::unused}, Change{24, 1, ConnectionFault::reason}}) {
    ConnectionMessageBytes bad = good;
    bad.bytes[change.offset] = std::byte{change.to};
    talk.say(bad.span());
    CHECK(malformed(change.fault) == 1);
  }
  std::array<std::byte, 4> tiny{};
  talk.say(std::span<std::byte>(tiny));
  CHECK(malformed(ConnectionFault::length) == 2);
  CHECK(talk.manager.counters().messages_received == before.messages_received);

  talk.say(talk.about(Kind::ready, ConnectionNumber{4}));                        // no such connection
  talk.say(talk.about(Kind::ready, number, ConnectionNumber{kPeer.value + 1}));  // not this peer's
  CHECK(talk.manager.counters().dropped_unknown_connection == 2);
  talk.say(talk.about(Kind::ready, number));             // this end is the one to say it
  talk.say(talk.about(Kind::disconnect_reply, number));  // not asked for
  CHECK(talk.manager.counters().dropped_unexpected == 2);
  const ConnectionNumber requested = talk.taken();
  talk.say(talk.about(Kind::disconnect_request, requested));
  CHECK(talk.manager.counters().dropped_unexpected == 3);
  CHECK(talk.state(requested) == State::requested);
  CHECK(talk.state(number) == State::established);
  CHECK(talk.of(own) == QueuePairState::ready_to_send);
  CHECK(talk.silent());
}

TEST_CASE("calls about connections that make no sense are refused", "[fabric][connection]") {
  Dialogue talk;
  ConnectionManager& manager = talk.manager;
  const ConnectionEnd own = talk.queue_pair();
  const std::vector<std::byte> long_request(kMaxRequestPrivateBytes + 1);
  const std::vector<std::byte> long_data(kMaxPrivateBytes + 1);
  const PathNumber path{1};
  CHECK(manager.connect(PathNumber{}, kService, own, {}).error() == Status::bad_argument);
  CHECK(manager.connect(PathNumber{9}, kService, own, {}).error() == Status::no_resources);
  CHECK(manager.connect(path, ServiceNumber{}, own, {}).error() == Status::bad_argument);
  CHECK(manager.connect(path, kService, {QpNumber{0x999}, 0, 0, 0, true}, {}).error() == Status::bad_argument);
  CHECK(manager.connect(path, kService, own, long_request).error() == Status::bad_length);
  CHECK(manager.listen(ServiceNumber{}, 1) == Status::bad_argument);
  CHECK(manager.listen(kService, 0) == Status::bad_length);
  const ConnectionNumber number = talk.established(own);
  CHECK(manager.connect(path, kService, own, {}).error() == Status::bad_state);
  CHECK(manager.accept(number, talk.queue_pair(), {}) == Status::bad_state);
  CHECK(manager.reject(number, {}) == Status::bad_state);
  CHECK(manager.disconnect(number, long_data) == Status::bad_length);
  const ConnectionNumber requested = talk.taken();
  CHECK(manager.accept(requested, talk.queue_pair(false), {}) == Status::bad_argument);
  CHECK(manager.accept(requested, own, {}) == Status::bad_state);  // connected already
  CHECK(manager.accept(requested, talk.queue_pair(), long_data) == Status::bad_length);
  CHECK(manager.reject(requested, long_data) == Status::bad_length);
  CHECK(manager.disconnect(requested, {}) == Status::bad_state);
  for (const ConnectionNumber nobody : {ConnectionNumber{}, ConnectionNumber{1}}) {
    CHECK(manager.accept(nobody, talk.queue_pair(), {}) == Status::bad_argument);
    CHECK(manager.reject(nobody, {}) == Status::bad_argument);
    CHECK(manager.disconnect(nobody, {}) == Status::bad_argument);
    CHECK_FALSE(manager.info(nobody).has_value());
  }
  CHECK(talk.silent());
}

TEST_CASE("what a program releases is rejected or ended in order", "[fabric][connection]") {
  Dialogue talk;
  const ConnectionEnd own = talk.queue_pair();
  const ConnectionNumber number = talk.established(own);
  talk.manager.release(number);
  CHECK(talk.of(own) == QueuePairState::error);
  talk.run();
  talk.one(Kind::disconnect_request);
  talk.say(talk.about(Kind::disconnect_reply, number));
  const ConnectionNumber requested = talk.taken();
  talk.manager.release(requested);
  talk.run();
  CHECK(talk.one(Kind::reject).reason == RejectReason::by_program);
  const ConnectionNumber connecting = talk.connect(talk.queue_pair());
  talk.one(Kind::request);
  talk.manager.release(connecting);
  talk.say(talk.about(Kind::reply, connecting));
  CHECK(talk.one(Kind::reject).reason == RejectReason::unknown_connection);
  talk.run(milliseconds(600));
  CHECK(talk.silent());
}

}  // namespace splitnic::fabric::connection_manager_test
