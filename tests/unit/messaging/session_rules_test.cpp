// What a session does with a peer that keeps to the protocol but is slow, early, or asks for much, and with a unit
// whose answer to the hello is wrong.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "messaging/session.h"
#include "scripted_peer.h"

namespace splitnic::messaging::session_rules_test {

using test::ScriptedHost;

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kControlBuffers = 32;

/// The host asks for as many answers as the unit's control channel has buffers, and acknowledges nothing yet. Returns
/// the transaction of the first; the others follow it.
std::uint64_t ask_for_a_channel_full(ScriptedHost& host) {
  host.run_peer_alone();  // it has all buffers back
  const std::uint64_t first = host.request(wire::Heartbeat{1});
  for (std::uint32_t beat = 2; beat <= kControlBuffers; ++beat) host.request(wire::Heartbeat{beat});
  host.run_peer_alone();
  return first;
}

void indicate(ScriptedHost& host, std::uint32_t element, std::uint32_t bytes) {
  host.write(element, bytes, wire::encode_immediate({host.unit_pool()->pool, element, bytes}));
}

std::size_t requests_got(const ScriptedHost& host, wire::CfgRequest code) {
  const auto requests = host.got<wire::CfgUtilRequest>();
  return static_cast<std::size_t>(std::count_if(requests.begin(), requests.end(), [&](const auto& request) {
    return request.code == static_cast<std::uint32_t>(code);
  }));
}

}  // namespace

TEST_CASE("a host ends a session whose hello the unit answers wrongly, with the reason", "[messaging][session]") {
  struct Wrong {
    std::function<void(wire::HelloReply&)> how;
    std::string reason;
  };
  const auto [how, reason] = GENERATE(values<Wrong>({
      {[](auto&) {}, ""},
      {[](auto& reply) { reply.role = wire::Role::host; }, "the peer is not an I/O unit"},
      {[](auto& reply) { reply.version = wire::kLowestVersion - 1; },
       "bad reply to Hello: version 0 is not in 1..65535"},
      {[](auto& reply) { reply.version = wire::kHighestVersion + 1; },
       "the I/O unit answers in version 2, which was not offered"},
      {[](auto& reply) { reply.mode = wire::Mode::send; }, "the I/O unit requires mode S"},
      {[](auto& reply) { reply.features = std::uint64_t{1} << 63U; },
       "the I/O unit's answer has features that this end did not offer"},
      {[](auto& reply) { reply.terms.data_channel.reset(); },
       "the I/O unit's answer has features that this end did not offer"},
  }));
  SessionOptions options = ScriptedHost::unit_options();
  options.role = wire::Role::host;
  options.offloads = true;
  options.pool_elements = 128;
  ScriptedHost unit(options);
  REQUIRE(unit.connect());
  REQUIRE(unit.run_until([&] { return !unit.got<wire::CfgUtilRequest>().empty(); }));
  wire::HelloReply reply{.features = wire::kFeatureOffloads,
                         .name = "unit",
                         .assigned_mac = MacAddress{{2, 0, 0, 0, 0, 1}},
                         .max_mtu = 1500,
                         .terms = unit.hello().terms};
  how(reply);
  unit.say([&](auto out) {
    return wire::encode_cfg_util_reply(out, unit.got<wire::CfgUtilRequest>().front().transaction, wire::CfgStatus::ok,
                                       wire::encode(wire::ReplyBody(reply)));
  });
  REQUIRE(
      unit.run_until([&] { return !unit.events.downs.empty() || unit.session().state() == SessionState::negotiated; }));
  CHECK(unit.events.downs == (reason.empty() ? std::vector<std::string>{} : std::vector{reason}));
}

TEST_CASE("an answer waits for room in a full control channel", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const std::uint64_t first = ask_for_a_channel_full(host);
  REQUIRE(host.session().request(wire::StatisticsReport{}));  // takes one of the buffers
  host.run_session_alone();
  const auto last = host.reply_to(first + kControlBuffers - 1);
  REQUIRE(last);
  REQUIRE(last->status == wire::CfgStatus::ok);
  REQUIRE(host.session().counters().answers_not_sent == 0);
}

TEST_CASE("a peer that requests faster than it takes answers loses those beyond one, to the exact number",
          "[messaging][session]") {
  ScriptedHost host;
  host.control_buffers = 48;
  REQUIRE(host.come_up());
  const std::uint64_t first = ask_for_a_channel_full(host);
  for (std::uint32_t beat = 0; beat < 3; ++beat) host.request(wire::Heartbeat{beat});
  host.run_peer_alone();
  REQUIRE(host.session().request(wire::StatisticsReport{}));  // one buffer, so that one answer waits
  host.run_session_alone();
  CHECK(host.session().counters().answers_not_sent == 3);
  CHECK(host.reply_to(first + kControlBuffers - 1));
  host.run();
  for (const auto& reply : host.got<wire::CfgUtilReply>()) CHECK(reply.transaction < first + kControlBuffers);
  CHECK(host.reply_to(host.request(wire::Heartbeat{4})));
  CHECK(host.session().counters().answers_not_sent == 3);
}

TEST_CASE("an answer without room dies with its session", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const std::uint64_t first = ask_for_a_channel_full(host);
  REQUIRE(host.session().request(wire::StatisticsReport{}));
  host.run_session_alone();
  host.session().reset("the test says so");
  host.run_session_alone(milliseconds(300));
  REQUIRE_FALSE(host.events.downs.empty());
  REQUIRE(host.come_up());
  host.run();
  for (const auto& reply : host.got<wire::CfgUtilReply>()) REQUIRE(reply.transaction >= first + kControlBuffers);
}

TEST_CASE("a session that ends forgets its requests", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  REQUIRE(host.session().request(wire::StatisticsReport{}));
  REQUIRE(host.session().request(wire::StatisticsClear{}));
  host.session().reset("the test says so");
  REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
  REQUIRE(host.come_up());
  host.run(milliseconds(1500));
  REQUIRE(host.session().up());
  REQUIRE(requests_got(host, wire::CfgRequest::heartbeat) > 0);
  REQUIRE(requests_got(host, wire::CfgRequest::statistics_report) == 0);
  REQUIRE(requests_got(host, wire::CfgRequest::statistics_clear) == 0);
}

TEST_CASE("a pool for longer frames than agreed is refused and counted", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1522, 8); });
  REQUIRE(host.run_until([&] { return host.got<wire::BufferRecvPool>().size() == 2; }));
  REQUIRE(host.session().counters().pool_gets_refused == 0);
  host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1523, 8); });
  REQUIRE(host.run_until([&] { return host.session().counters().pool_gets_refused == 1; }));
  REQUIRE(host.got<wire::BufferRecvPool>().size() == 2);
}

TEST_CASE("a reply with another transaction answers nothing", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  REQUIRE(host.session().request(wire::LinkState{.up = false}));
  REQUIRE(host.run_until([&] { return requests_got(host, wire::CfgRequest::link_state) == 1; }));
  const std::uint64_t transaction = host.got<wire::CfgUtilRequest>().back().transaction;
  const auto data = wire::encode(wire::ReplyBody(wire::Acknowledged{}));
  host.say([&](auto out) { return wire::encode_cfg_util_reply(out, transaction + 1, wire::CfgStatus::ok, data); });
  REQUIRE(host.run_until([&] { return host.session().counters().stray_replies == 1; }));
  REQUIRE(host.events.replies.empty());
  host.say([&](auto out) { return wire::encode_cfg_util_reply(out, transaction, wire::CfgStatus::ok, data); });
  REQUIRE(host.run_until([&] { return host.events.replies.size() == 1; }));
  REQUIRE(host.session().counters().stray_replies == 1);
}

TEST_CASE("a few consumed elements go back within 50 ms", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  indicate(host, 0, 60);
  host.run(milliseconds(45));
  REQUIRE(host.events.frames.size() == 1);
  REQUIRE(host.got<wire::BufferRecvPoolUpdate>().empty());
  host.run(milliseconds(10));
  REQUIRE(host.got<wire::BufferRecvPoolUpdate>().size() == 1);
}

TEST_CASE("a quarter of a pool goes back at once", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  indicate(host, 0, 60);
  indicate(host, 1, 60);
  host.run();
  REQUIRE(host.got<wire::BufferRecvPoolUpdate>().size() == 1);
}

TEST_CASE("the longest frame agreed arrives, one byte more is dropped and counted", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const std::uint32_t longest = 1500 + kFrameOverheadBytes;
  REQUIRE(host.session().max_frame_bytes() == longest);
  indicate(host, 0, longest);
  indicate(host, 1, longest + 1);
  REQUIRE(host.run_until([&] { return host.session().counters().rx_bad_length == 1; }));
  REQUIRE(host.events.frames.size() == 1);
  REQUIRE(host.session().up());
}

TEST_CASE("an end without elements asks for a pool, every ten milliseconds", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.flush(30, 0, false);
  host.advertise_memory(1, 2);
  host.run(milliseconds(20));
  for (int frame = 0; frame < 2; ++frame) {
    REQUIRE_FALSE(host.session().claim().empty());
    host.session().commit(60);
  }
  host.run();
  REQUIRE(host.got<wire::BufferRecvPoolGet>().empty());
  REQUIRE(host.session().claim().empty());
  host.run(milliseconds(25));
  const auto gets = host.got<wire::BufferRecvPoolGet>();
  REQUIRE(gets.size() == 3);
  REQUIRE(gets[0].packet_bytes == 1500 + kFrameOverheadBytes);
  REQUIRE(gets[0].packets == 2);
  host.advertise_memory(2, 2);
  host.run(milliseconds(25));
  REQUIRE(host.got<wire::BufferRecvPoolGet>().size() == 3);
  REQUIRE_FALSE(host.session().claim().empty());
}

TEST_CASE("an end that shuts down takes no more frames", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  REQUIRE_FALSE(host.session().claim().empty());
  host.session().begin_shutdown();
  REQUIRE(host.session().claim().empty());
}

TEST_CASE("a frame before both ends have pools is dropped and counted", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up_to_pools());
  indicate(host, 0, 60);
  REQUIRE(host.run_until([&] { return host.session().counters().rx_before_up == 1; }));
  REQUIRE(host.events.frames.empty());
  host.advertise(0, 4);
  host.request(wire::LinkState{.up = true});
  REQUIRE(host.run_until([&] { return host.session().up(); }));
  indicate(host, 1, 60);
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
}

TEST_CASE("a host that is ready before it has advertised a pool is refused, and may say so again",
          "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up_to_pools());
  const auto early = host.reply_to(host.request(wire::LinkState{.up = true}));
  REQUIRE(early);
  CHECK(early->status == wire::CfgStatus::no_resources);
  host.advertise(0, 4);
  const auto ready = host.reply_to(host.request(wire::LinkState{.up = true}));
  REQUIRE(ready);
  CHECK(ready->status == wire::CfgStatus::ok);
  CHECK(host.session().up());
}

TEST_CASE("a pool that is advertised after a request for one answers nothing: its transaction is 0",
          "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0x1234, 1500, 8); });
  host.run();
  const auto pools = host.got<wire::BufferRecvPool>();
  REQUIRE(pools.size() == 2);
  CHECK(pools.back().transaction == 0);
}

TEST_CASE("in mode S a message of the data channel is a frame, without a header", "[messaging][session]") {
  ScriptedHost host;
  host.mode = wire::Mode::send;
  REQUIRE(host.come_up());  // which says everything after the hello on queue pair 2
  std::vector<std::byte> frame(60);
  for (std::size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i);
  std::ranges::copy(frame, host.data().claim().begin());
  REQUIRE(host.data().commit(frame.size()));
  host.run();
  REQUIRE(host.events.frames.size() == 1);
  CHECK(host.events.frames[0] == frame);

  const FrameMemory to = host.session().claim(60);
  REQUIRE(to.size() == 60);
  std::ranges::copy(frame, to.bytes.begin());
  host.session().commit(60);
  host.session().flush();
  host.run();
  REQUIRE(host.received_data.messages.size() == 1);
  CHECK(host.received_data.messages[0] == frame);
  CHECK(host.got<wire::SendData>().empty());
}

TEST_CASE("credit is what the peer has returned", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.flush(30, 0, false);
  host.advertise_memory(1, 2);
  host.run();
  REQUIRE(host.session().credits().free == 2);
  for (int frame = 0; frame < 2; ++frame) {
    REQUIRE_FALSE(host.session().claim().empty());
    host.session().commit(60);
  }
  REQUIRE(host.session().credits().free == 0);
  const wire::ElementRun both{wire::PoolNumber{1}, 0, 2};
  host.say([&](auto out) { return wire::encode_buffer_recv_pool_update(out, 0, std::span(&both, 1)); });
  REQUIRE(host.run_until([&] { return host.session().credits().free == 2; }));
  REQUIRE(host.session().credits().elements == 2);
}

}  // namespace splitnic::messaging::session_rules_test
