#include "messaging/session.h"

#include <catch2/catch.hpp>

#include "scripted_peer.h"

namespace splitnic::messaging::session_test {

using test::ScriptedHost;

namespace {

std::vector<std::byte> words(std::initializer_list<std::uint32_t> values) {
  std::vector<std::byte> bytes;
  for (const std::uint32_t value : values) {
    for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::byte>(value >> shift & 0xffU));
  }
  return bytes;
}

constexpr std::uint32_t head(std::uint32_t function) { return function << 16U | 1U; }

std::size_t answers_unsupported(const ScriptedHost& host) {
  std::size_t count = 0;
  for (const auto& message : host.received.messages) {
    const auto decoded = wire::decode(message, {});
    if (decoded && std::holds_alternative<wire::Unsupported>(*decoded)) ++count;
  }
  return count;
}

/// The session ended for a reason that says `why`, and the same peer can come up again.
void require_fault(ScriptedHost& host, const std::string& why) {
  REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
  REQUIRE_THAT(host.events.downs.front(), Catch::Contains(why));
  REQUIRE(host.session().counters().faults == 1);
  REQUIRE(host.come_up());
}

}  // namespace

TEST_CASE("a host that follows the protocol comes up", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  REQUIRE(host.events.ups == 1);
  REQUIRE(host.events.downs.empty());
  REQUIRE(host.session().mode() == wire::Mode::rdma);
}

TEST_CASE("a session is for the MTU that its hello was granted, until the next epoch", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.session().max_mtu() == 1500);
  host.events.granted_mtu = 1280;  // the LAN's has shrunk since the epoch began
  REQUIRE(host.come_up());
  REQUIRE(host.session().max_mtu() == 1280);
  host.events.granted_mtu = 1500;
  REQUIRE(host.session().max_mtu() == 1280);
  host.session().reset("larger elements are needed");
  REQUIRE(host.come_up());
  REQUIRE(host.session().max_mtu() == 1500);
}

TEST_CASE("a frame written into an element and indicated arrives, and the element comes back", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  for (std::uint32_t lap = 0; lap < 20; ++lap) {
    const std::uint32_t element = lap % 8;
    host.write(element, 60 + lap, wire::encode_immediate({host.unit_pool()->pool, element, 60 + lap}));
    REQUIRE(host.run_until([&] { return host.events.frames.size() == lap + 1; }));
    REQUIRE(host.events.frames.back().size() == 60 + lap);
    host.run(std::chrono::milliseconds(60));
  }
  REQUIRE(host.session().counters().messages_sent[wire::index_of(wire::Function::buffer_recv_pool_update)] > 0);
  REQUIRE(host.events.downs.empty());
}

TEST_CASE("malformed messages end the session, which then comes up again", "[messaging][session]") {
  struct Row {
    const char* what;
    std::vector<std::byte> message;
  };
  const auto rows = std::vector<Row>{
      {"nothing at all but half a header", words({head(1)})},
      {"a pool list without entries", words({head(1), 0, 0, 0})},
      {"a pool list with reserved bits", words({head(1), 0, 0, 1, 9, 4, 1536, 7, 0, 0, 0, 0})},
      {"a pool without elements", words({head(1), 0, 0, 0, 9, 0, 1536, 7, 0, 0, 0, 0})},
      {"element bytes off the grain", words({head(1), 0, 0, 0, 9, 4, 1537, 7, 0, 0, 0, 0})},
      {"an address that wraps", words({head(1), 0, 0, 0, 9, 4, 1536, 7, 0xffffffff, 0xffffffff, 0, 0})},
      {"half an entry", words({head(1), 0, 0, 0, 9, 4, 1536, 7})},
      {"a get that is too short", words({head(2), 0, 0, 1500})},
      {"an update without entries", words({head(3), 0, 0})},
      {"an update of nothing", words({head(3), 0, 0, 0, 0, 0})},
      {"an update of a pool never advertised", words({head(3), 0, 0, 99, 0, 1})},
      {"an update of elements outside the pool", words({head(3), 0, 0, 0, 4, 1})},
      {"a return of an element that was not consumed", words({head(3), 0, 0, 0, 0, 1})},
      {"a flush without entries", words({head(4), 0, 0})},
      {"a flush reply with a body", words({head(5), 0, 0, 1})},
      {"SendData that claims more than it brings", words({head(6), 0, 0, 100, 1, 2, 3, 4})},
      {"SendData shorter than a frame", words({head(6), 0, 0, 4, 1})},
      {"an indication on the control channel", words({head(7), 0, 0, 0, 0, 60})},
      {"CfgUtil with the wrong data length", words({head(8), 0, 0, 11, 8, 0})},
      {"CfgUtil with reserved bits", words({head(8), 0, 0, 11, 0, 1})},
      {"a CfgUtil reply with a status that is none", words({head(9), 1, 0, 77, 0, 0})},
      {"Unsupported cut short", words({head(0x8000), 0, 0, 1})},
  };
  for (const auto& row : rows) {
    DYNAMIC_SECTION(row.what) {
      ScriptedHost host;
      REQUIRE(host.come_up());
      host.send(row.message);
      require_fault(host, "");
    }
  }
}

TEST_CASE("an unknown function and another version are answered with Unsupported and nothing else",
          "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  SECTION("function") { host.send(words({head(10), 0, 0})); }
  SECTION("version") { host.send(words({1U << 16U | 2U, 0, 0})); }
  REQUIRE(host.run_until([&] { return answers_unsupported(host) == 1; }));
  REQUIRE(host.session().up());
}

TEST_CASE("a flood of nonsense is answered at a limited rate", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  for (int count = 0; count < 200; ++count) {
    host.send(words({head(100), 0, 0}));
    host.run(std::chrono::microseconds(200));
  }
  REQUIRE(answers_unsupported(host) >= 1);
  REQUIRE(answers_unsupported(host) <= 2);
  REQUIRE(host.session().counters().bad_messages == 200);
  REQUIRE(host.session().up());
}

TEST_CASE("indications of what is not the peer's end the session", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const auto pool = host.unit_pool()->pool;
  SECTION("a pool that does not exist") { host.write(0, 60, wire::encode_immediate({wire::PoolNumber{9}, 0, 60})); }
  SECTION("an element outside the pool") { host.write(0, 60, wire::encode_immediate({pool, 8, 60})); }
  SECTION("shorter than a frame") { host.write(0, 60, wire::encode_immediate({pool, 0, 13})); }
  SECTION("longer than the element") { host.write(0, 60, wire::encode_immediate({pool, 0, 1537})); }
  SECTION("64 KiB") { host.write(0, 60, wire::encode_immediate({pool, 0, 65536})); }
  SECTION("the same element twice") {
    for (std::uint32_t element = 0; element < 8; ++element) {
      if (element == 1) host.write(1, 60, wire::encode_immediate({pool, 7, 60}));
      host.write(0, 60, wire::encode_immediate({pool, 0, 60}));
    }
  }
  require_fault(host, "indication");
}

TEST_CASE("elements skipped on the way are counted lost and given back", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.write(3, 60, wire::encode_immediate({host.unit_pool()->pool, 3, 60}));
  REQUIRE(host.run_until([&] { return host.events.frames.size() == 1; }));
  REQUIRE(host.session().counters().lost_elements == 3);
  REQUIRE(host.session().up());
}

TEST_CASE("a flood of pools, a number used twice and too many elements end the session", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  SECTION("flood") {
    for (std::uint32_t pool = 1; pool < 20; ++pool) host.advertise(pool, 4);
    require_fault(host, "more than 8 pools");
  }
  SECTION("number used twice") {
    host.advertise(0, 4);
    require_fault(host, "a pool number that is not above all earlier ones");
  }
  SECTION("a lower number, never used") {
    host.advertise(9, 4);
    host.run();
    REQUIRE(host.session().up());
    host.advertise(5, 4);
    require_fault(host, "a pool number that is not above all earlier ones");
  }
  SECTION("elements") {
    host.advertise(1, 65'536);
    host.advertise(2, 1);
    require_fault(host, "more than 65536 elements in pools");
  }
}

TEST_CASE("eight pools with 65536 elements in all are taken, and numbers may be left out", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  for (std::uint32_t pool = 1; pool < 7; ++pool) host.advertise(10 * pool, 4);
  host.advertise(0x7fff'ffff, 65'536 - 7 * 4);
  host.run();
  CHECK(host.session().up());
  CHECK(host.session().credits().elements == 65'536);
}

TEST_CASE("requests for more memory than there is are refused and counted", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  for (int count = 0; count < 40; ++count) {
    host.say([](auto out) { return wire::encode_buffer_recv_pool_get(out, 0, 1500, 8); });
    host.run(std::chrono::milliseconds(1));
  }
  REQUIRE(host.session().up());
  REQUIRE(host.session().counters().pool_gets_refused == 33);  // eight pools in all, the first unasked
}

TEST_CASE("nothing but hello is granted before hello, and hello once", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.connect());
  const auto early = host.reply_to(host.request(wire::Heartbeat{1}));
  REQUIRE(early);
  REQUIRE(early->status == wire::CfgStatus::not_permitted);
  REQUIRE(host.reply_to(host.request(host.hello()))->status == wire::CfgStatus::ok);
  REQUIRE(host.reply_to(host.request(host.hello()))->status == wire::CfgStatus::invalid_parameter);
}

TEST_CASE("a hello without a common version is answered with Unsupported", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.connect());
  auto hello = host.hello();
  hello.lowest_version = 7;
  hello.highest_version = 9;
  host.request(hello);
  REQUIRE(host.run_until([&] { return answers_unsupported(host) == 1; }));
}

TEST_CASE("CfgUtil data that makes no sense is refused and the session goes on", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const std::vector<std::byte> garbage(16, std::byte{0xff});
  for (std::uint32_t code = 1; code <= wire::kLastCfgRequest; ++code) {
    host.say([&](auto out) {
      return wire::encode_cfg_util_request(out, 9000 + code, static_cast<wire::CfgRequest>(code), garbage);
    });
    const auto reply = host.reply_to(9000 + code);
    CAPTURE(code);
    REQUIRE(reply);
    REQUIRE(reply->status != wire::CfgStatus::ok);
  }
  host.say([&](auto out) { return wire::encode_cfg_util_request(out, 9999, static_cast<wire::CfgRequest>(999), {}); });
  REQUIRE(host.reply_to(9999)->status == wire::CfgStatus::unknown_request);
  REQUIRE(host.session().up());
}

TEST_CASE("a peer that connects and says nothing is left after three seconds", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.connect());
  host.run(std::chrono::milliseconds(2900));
  REQUIRE(host.events.downs.empty());
  REQUIRE(host.run_until([&] { return !host.events.downs.empty(); }));
  REQUIRE_THAT(host.events.downs.front(), Catch::Contains("stalled"));
}

TEST_CASE("replies to nothing are counted and ignored", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.say([](auto out) { return wire::encode_cfg_util_reply(out, 424242, wire::CfgStatus::ok, {}); });
  REQUIRE(host.run_until([&] { return host.session().counters().stray_replies == 1; }));
  REQUIRE(host.session().up());
}

TEST_CASE("a flush by the owner is answered when every write is acknowledged", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  const wire::FlushedPool mine{wire::PoolNumber{0}, false};
  host.say([&](auto out) { return wire::encode_buffer_pool_flush_request(out, 31, std::span(&mine, 1)); });
  REQUIRE(host.run_until([&] {
    for (const auto& message : host.received.messages) {
      const auto decoded = wire::decode(message, {});
      const auto* reply = decoded ? std::get_if<wire::BufferPoolFlushReply>(&*decoded) : nullptr;
      if (reply != nullptr && reply->transaction == 31) return true;
    }
    return false;
  }));
  REQUIRE(host.session().claim().empty());  // nowhere to write any more
  REQUIRE(host.session().up());
}

TEST_CASE("an orderly end takes the pools back and says goodbye", "[messaging][session]") {
  ScriptedHost host;
  REQUIRE(host.come_up());
  host.session().begin_shutdown();
  REQUIRE_FALSE(host.session().finished());
  REQUIRE(host.run_until([&] {
    for (const auto& message : host.received.messages) {
      const auto decoded = wire::decode(message, {});
      if (decoded && std::holds_alternative<wire::BufferPoolFlushRequest>(*decoded)) return true;
    }
    return false;
  }));
  host.say([](auto out) { return wire::encode_buffer_pool_flush_reply(out, 1); });
  REQUIRE(host.run_until([&] {
    for (const auto& message : host.received.messages) {
      const auto decoded = wire::decode(message, {});
      const auto* request = decoded ? std::get_if<wire::CfgUtilRequest>(&*decoded) : nullptr;
      if (request != nullptr && request->code == static_cast<std::uint32_t>(wire::CfgRequest::reset)) return true;
    }
    return false;
  }));
}

}  // namespace splitnic::messaging::session_test
