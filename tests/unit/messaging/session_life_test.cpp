// Sessions over time: peers that fall silent, and what one epoch leaves to the next (nothing).
#include <catch2/catch.hpp>

#include "messaging/session.h"
#include "scripted_peer.h"

namespace splitnic::messaging::session_life_test {

using test::ScriptedHost;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

TEST_CASE("a peer that falls silent is given up when three heartbeats in a row went unanswered",
          "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const Time up_since = host.now();
  // The first beat at the last full second of the clock within a second; then three tries of a second each.
  REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }, seconds(5)));
  const Duration patience = host.now() - up_since;
  const Duration rounded = up_since.time_since_epoch() % seconds(1);
  REQUIRE(patience > milliseconds(3990) - rounded);
  REQUIRE(patience < milliseconds(4010) - rounded);
  REQUIRE_THAT(host.events.downs.front(), Catch::Contains("no answer to Heartbeat"));
  std::size_t beats = 0;
  std::uint64_t transaction = 0;
  for (const auto& request : host.got<wire::CfgUtilRequest>()) {
    if (request.code != static_cast<std::uint32_t>(wire::CfgRequest::heartbeat)) continue;
    ++beats;
    REQUIRE((transaction == 0 || request.transaction == transaction));  // a try again is the same request
    transaction = request.transaction;
  }
  REQUIRE(beats == 3);
  REQUIRE(host.session().counters().faults == 1);
  REQUIRE(host.come_up());
}

TEST_CASE("a peer that answers its heartbeats is kept", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.idle(seconds(20));
  REQUIRE(host.events.downs.empty());
  REQUIRE(host.session().counters().messages_sent[wire::index_of(wire::Function::cfg_util_request)] >= 19);
}

TEST_CASE("in the pause after a fault a session sleeps until its restart, whatever waits in the ended epoch",
          "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const std::vector<std::byte> half_a_header(6);
  host.send(half_a_header);
  REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
  host.send(half_a_header);
  host.run_peer_alone();
  REQUIRE(host.session().prepare_sleep());
  const Time wake = host.session().next_deadline();
  REQUIRE(wake > host.now());
  REQUIRE(wake <= host.now() + milliseconds(100));
  host.session().disarm();
  REQUIRE(host.come_up());
}

TEST_CASE("a new epoch starts with nothing of the one before", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  SECTION("an indication that had not left stays away") {
    host.flush(30, 0, false);
    host.advertise_memory(1, 300);  // too many elements for immediate data
    host.run();
    REQUIRE_FALSE(host.session().claim().empty());
    host.session().commit(60);
    host.session().reset("the test says so");
    REQUIRE(host.come_up());
    host.run();
    REQUIRE(host.received_data.messages.empty());
    REQUIRE(host.session().up());
  }
  SECTION("a claim is void") {
    REQUIRE_FALSE(host.session().claim().empty());
    host.session().reset("the test says so");
    REQUIRE(host.come_up());
    const auto frames = host.session().counters().tx_frames;
    host.session().commit(60);
    REQUIRE(host.session().counters().tx_frames == frames);
  }
  SECTION("a flush that was not answered stays so") {
    host.flush(31, 0, false);
    host.run_peer_alone();
    host.session().reset("the test says so");
    REQUIRE(host.come_up());
    host.run();
    REQUIRE(host.got<wire::BufferPoolFlushReply>().empty());
  }
  SECTION("limits are those of the new hello") {
    host.session().reset("the test says so");
    host.list_entries = 1;
    REQUIRE(host.come_up());
    host.session().reset("the test says so");
    host.list_entries = 64;
    REQUIRE(host.come_up());
    host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1500, 8); });
    host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1500, 8); });
    host.run();
    host.session().begin_shutdown();
    REQUIRE(host.run_until([&] { return !host.got<wire::BufferPoolFlushRequest>().empty(); }));
    REQUIRE(host.got<wire::BufferPoolFlushRequest>()[0].pools.size() == 3);
  }
}

}  // namespace splitnic::messaging::session_life_test
