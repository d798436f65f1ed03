// Pools taken back: by their owner or by their user, several at a time, in the midst of writes.
#include <catch2/catch.hpp>

#include "messaging/session.h"
#include "scripted_peer.h"

namespace splitnic::messaging::session_flush_test {

using test::ScriptedHost;

namespace {

using std::chrono::milliseconds;
using FlushRequest = wire::BufferPoolFlushRequest;
using FlushReply = wire::BufferPoolFlushReply;

constexpr Duration kExtraPoolIdle = std::chrono::seconds(10);

std::uint64_t sent(ScriptedHost& host, wire::Function function) {
  return host.session().counters().messages_sent[wire::index_of(function)];
}

bool said_goodbye(const ScriptedHost& host) {
  for (const auto& request : host.got<wire::CfgUtilRequest>()) {
    if (request.code == static_cast<std::uint32_t>(wire::CfgRequest::reset)) return true;
  }
  return false;
}

void write_element(ScriptedHost& host, std::uint32_t element) {
  host.write(element, 60, wire::encode_immediate({host.unit_pool()->pool, element, 60}));
}

/// Sends a frame into the peer's pool. False: no element, or no room.
bool push_frame(ScriptedHost& host) {
  const auto memory = host.session().claim();
  if (memory.empty()) return false;
  memory.write(0, std::vector(60, std::byte{1}));
  host.session().commit(60);
  host.session().flush();
  return true;
}

}  // namespace

TEST_CASE("the reply to one flush frees nothing of another: what the peer still writes arrives",
          "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.advertise(1, 4);
  host.idle(kExtraPoolIdle + milliseconds(100));
  REQUIRE(host.got<FlushRequest>().size() == 1);
  const auto of_user = host.got<FlushRequest>()[0];
  REQUIRE(of_user.pools.size() == 1);
  REQUIRE(of_user.pools[0] == wire::FlushedPool{wire::PoolNumber{1}, true});
  const std::uint64_t user_transaction = of_user.transaction;

  host.session().begin_shutdown();
  REQUIRE(host.run_until([&] { return host.got<FlushRequest>().size() == 2; }));
  const std::uint64_t owner_transaction = host.got<FlushRequest>()[1].transaction;
  REQUIRE(owner_transaction != user_transaction);

  // The late reply. The peer has not said that it stopped using the unit's own pool, and uses it.
  host.answer_flush(user_transaction);
  host.run();
  write_element(host, 0);
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
  REQUIRE(host.events.downs.empty());
  REQUIRE_FALSE(said_goodbye(host));

  host.answer_flush(owner_transaction);
  REQUIRE(host.run_until([&] { return said_goodbye(host); }));
  REQUIRE(host.session().counters().stray_replies == 0);
}

TEST_CASE("a flush reply to nothing that was asked is counted and frees nothing", "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.answer_flush(4711);
  host.answer_flush(0);
  REQUIRE(host.run_until([&] { return host.session().counters().stray_replies == 2; }));
  write_element(host, 0);
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
}

TEST_CASE("every flush request gets its own reply, as many as there can be pools; one more ends the session",
          "[messaging][session][flush]") {
  constexpr std::uint64_t kMost = 16;
  ScriptedHost host;
  REQUIRE(host.come_up());
  const auto ask = [&](std::uint64_t count) {
    for (std::uint64_t transaction = 1; transaction <= count; ++transaction) {
      host.flush(transaction, static_cast<std::uint32_t>(transaction), false);
    }
    host.run_peer_alone();
  };
  SECTION("as many") {
    ask(kMost);
    REQUIRE(host.run_until([&] { return host.got<FlushReply>().size() == kMost; }));
    for (std::uint64_t index = 0; index < kMost; ++index) {
      REQUIRE(host.got<FlushReply>()[index].transaction == index + 1);
    }
    REQUIRE(host.session().up());
  }
  SECTION("one more") {
    ask(kMost + 1);
    REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
    REQUIRE_THAT(host.events.downs.front(), Catch::Contains("more flush requests"));
  }
}

TEST_CASE("a flush is answered when the writes before it are acknowledged, and not before",
          "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.flush(30, 0, false);  // the one that has no memory
  REQUIRE(host.run_until([&] { return host.got<FlushReply>().size() == 1; }));
  host.advertise_memory(1, 8);
  host.run();
  REQUIRE(push_frame(host));
  host.flush(31, 1, false);
  host.run_session_alone();
  REQUIRE(sent(host, wire::Function::buffer_pool_flush_reply) == 1);
  REQUIRE(host.session().claim().empty());  // nowhere to write any more
  REQUIRE(host.run_until([&] { return host.got<FlushReply>().size() == 2; }));
  REQUIRE(host.received_data.immediates.size() == 1);
}

TEST_CASE("a flush of one pool is answered while writes into another go on", "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.flush(30, 0, false);
  host.advertise_memory(1, 200);
  host.advertise(2, 4);
  host.run();
  REQUIRE(push_frame(host));
  host.flush(31, 2, false);
  for (int step = 0; step < 100; ++step) {
    REQUIRE(push_frame(host));  // posted behind the flush, and always one on its way
    host.run(std::chrono::microseconds(20));
  }
  REQUIRE(host.got<FlushReply>().size() == 2);
  REQUIRE(host.session().up());
}

TEST_CASE("indications that wait for company leave before a flush of their pool is answered",
          "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.flush(30, 0, false);
  host.advertise_memory(1, 300);  // too many elements for immediate data
  host.run();
  const auto memory = host.session().claim();
  REQUIRE_FALSE(memory.empty());
  host.session().commit(60);  // the batch is not at its end
  host.flush(31, 1, false);
  REQUIRE(host.run_until([&] { return host.got<FlushReply>().size() == 2; }));
  REQUIRE(host.received_data.messages.size() == 1);
}

TEST_CASE("what the peer wrote before it gave a pool back arrives, however little a poll handles",
          "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const bool by_user = GENERATE(true, false);
  std::uint64_t transaction = 90;
  if (!by_user) {
    host.session().begin_shutdown();
    REQUIRE(host.run_until([&] { return host.got<FlushRequest>().size() == 1; }));
    transaction = host.got<FlushRequest>()[0].transaction;
  }
  host.run();
  for (std::uint32_t element = 0; element < 8; ++element) write_element(host, element);
  host.run_peer_alone();
  host.session().poll(host.now(), 1);
  host.run_peer_alone();
  REQUIRE(host.data().completed() == host.data().posted());
  REQUIRE(host.events.frames.size() == 1);
  if (by_user) {
    host.flush(transaction, host.unit_pool()->pool.value, true);
  } else {
    host.answer_flush(transaction);
  }
  host.run_peer_alone();
  host.session().poll(host.now(), 1);
  CHECK(host.events.frames.size() == 8);
  CHECK(host.events.downs.empty());
}

TEST_CASE("a pool that its user is done with is gone: a later write is refused", "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  write_element(host, 0);
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
  host.flush(31, host.unit_pool()->pool.value, true);
  REQUIRE(host.run_until([&] { return host.got<FlushReply>().size() == 1; }));
  write_element(host, 1);
  REQUIRE(host.run_until([&] { return !host.received_data.failures.empty(); }));
  REQUIRE(host.events.frames.size() == 1);
}

TEST_CASE("extra pools go back to their owner after ten seconds without use, not earlier",
          "[messaging][session][flush]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.advertise(1, 4);
  host.advertise(2, 4);
  host.idle(kExtraPoolIdle - milliseconds(10));
  REQUIRE(host.session().credits().elements == 12);
  REQUIRE(host.got<FlushRequest>().empty());
  host.idle(milliseconds(20));
  REQUIRE(host.got<FlushRequest>().size() == 1);
  REQUIRE(host.got<FlushRequest>()[0].pools.size() == 2);
  REQUIRE(host.session().credits().elements == 4);
}

TEST_CASE("with lists of one entry nothing is lost: returns, pools and flushes go one by one",
          "[messaging][session][flush]") {
  ScriptedHost host;
  host.list_entries = 1;
  REQUIRE(host.come_up());
  SECTION("returns") {
    // Five at a time around a ring of eight: every other return wraps, and is two runs.
    std::uint32_t frames = 0;
    for (int lap = 0; lap < 20; ++lap) {
      for (int count = 0; count < 5; ++count) write_element(host, frames++ % 8);
      REQUIRE(host.run_until([&] { return host.events.frames.size() == frames; }));
      host.run(milliseconds(60));
      std::uint32_t returned = 0;
      for (const auto& update : host.got<wire::BufferRecvPoolUpdate>()) {
        REQUIRE(update.runs.size() == 1);
        returned += update.runs[0].elements;
      }
      REQUIRE(returned == frames);
    }
    REQUIRE(host.events.downs.empty());
  }
  SECTION("pools and flushes") {
    for (int count = 0; count < 2; ++count) {
      host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1500, 8); });
    }
    host.run_peer_alone();
    REQUIRE(host.run_until([&] { return host.got<wire::BufferRecvPool>().size() == 3; }));
    host.session().begin_shutdown();
    REQUIRE(host.run_until([&] { return host.got<FlushRequest>().size() == 3; }));
    for (std::size_t index : {2U, 0U, 1U}) {
      REQUIRE_FALSE(said_goodbye(host));
      const auto request = host.got<FlushRequest>()[index];
      REQUIRE(request.pools.size() == 1);
      REQUIRE(request.pools[0].pool == wire::PoolNumber{static_cast<std::uint32_t>(index)});
      host.answer_flush(request.transaction);
      host.run();
    }
    REQUIRE(host.run_until([&] { return said_goodbye(host); }));
  }
  SECTION("extra pools") {
    host.advertise(1, 4);
    host.advertise(2, 4);
    host.idle(kExtraPoolIdle + milliseconds(100));
    REQUIRE(host.got<FlushRequest>().size() == 2);
    REQUIRE(host.session().credits().elements == 4);
    REQUIRE(host.session().up());
  }
}

}  // namespace splitnic::messaging::session_flush_test
