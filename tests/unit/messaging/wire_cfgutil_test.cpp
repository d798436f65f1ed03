#include "messaging/wire/cfgutil.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <catch2/catch.hpp>

#include "common/random.h"
#include "messaging/wire/cfgutil.capnp.h"
#include "messaging/wire/entries.h"
#include "tests/unit/messaging/wire_samples.h"

// After the house's headers, so that CHECK is Catch's.
#include <cstring>
#include <functional>

namespace splitnic::messaging::wire::wire_cfgutil_test {

namespace schema = splitnic::messaging::schema;
using samples::Bytes;
using splitnic::MacAddress;
using splitnic::SeededRandom;

namespace {

/// Data made field by field, so that it can say what our own encoder would not.
template <class Root>
Bytes built(const std::function<void(typename Root::Builder)>& fill) {
  capnp::MallocMessageBuilder message;
  fill(message.initRoot<Root>());
  const auto words = capnp::messageToFlatArray(message);
  Bytes bytes(words.asBytes().size());
  std::memcpy(bytes.data(), words.asBytes().begin(), bytes.size());
  return bytes;
}

std::string status_of(CfgRequest request, const Bytes& data) {
  const auto body = decode_request(static_cast<std::uint32_t>(request), data);
  return std::string(to_string(body ? CfgStatus::ok : body.error().status));
}

bool accepted(CfgRequest request, const Bytes& data) { return status_of(request, data) == "ok"; }

/// A valid hello with one field changed.
Bytes hello_with(const std::function<void(schema::HelloRequest::Builder)>& change) {
  return built<schema::HelloRequest>([&](schema::HelloRequest::Builder hello) {
    hello.setLowestVersion(1);
    hello.setHighestVersion(1);
    hello.setRole(schema::Role::HOST);
    hello.setMode(schema::Mode::RDMA);
    hello.setName("host-1");
    auto terms = hello.initTerms();
    terms.setMaxMessageBytes(4096);
    terms.setMaxListEntries(64);
    terms.setMaxFrameBytes(1514);
    terms.setCellBytes(256);
    terms.setReceiveDepth(64);
    terms.setDataChannel(true);
    terms.setDataQueuePair(5);
    terms.setDataReceiveDepth(64);
    change(hello);
  });
}

Bytes mac_data(std::uint64_t mac) {
  return built<schema::MacAddress>([&](auto out) { out.setAddress(mac); });
}

Bytes mtu_data(std::uint32_t mtu) {
  return built<schema::Mtu>([&](auto out) { out.setBytes(mtu); });
}

Bytes filter_data(unsigned unicast, std::uint64_t unicast_mac, unsigned multicast, std::uint64_t multicast_mac) {
  return built<schema::ReceiveFilter>([&](schema::ReceiveFilter::Builder out) {
    auto list = out.initUnicast(unicast);
    for (unsigned i = 0; i < unicast; ++i) list.set(i, unicast_mac);
    list = out.initMulticast(multicast);
    for (unsigned i = 0; i < multicast; ++i) list.set(i, multicast_mac);
  });
}

Bytes vlan_data(const std::vector<std::uint16_t>& vids) {
  return built<schema::VlanFilter>([&](schema::VlanFilter::Builder out) {
    auto list = out.initOnly(static_cast<unsigned>(vids.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, vids[i]);
  });
}

Bytes status_data(const std::string& text) {
  return built<schema::StatusReport>([&](auto out) { out.setText(text.c_str()); });
}

constexpr std::uint64_t kStation = 0x0200'5e10'0001;
constexpr std::uint64_t kGroup = 0x0100'5e00'0001;

struct NumberCase {
  std::uint64_t value;
  bool accepted;
};

}  // namespace

TEST_CASE("the bytes of the hello are frozen", "[messaging][wire]") {
  CHECK(samples::hex_dump(encode(samples::sample_hello())) ==
        "0000  00 00 00 00 0c 00 00 00 00 00 00 00 03 00 02 00\n"
        "0010  01 00 01 00 01 00 01 00 00 00 00 00 00 00 00 00\n"
        "0020  01 00 10 5e 00 02 00 00 05 00 00 00 42 00 00 00\n"
        "0030  04 00 00 00 05 00 00 00 68 c3 b4 74 65 2d 31 00\n"
        "0040  50 00 01 00 00 01 00 00 40 00 01 00 00 01 00 00\n"
        "0050  80 00 00 00 01 00 00 00 35 12 00 00 00 02 00 00\n"
        "0060  ef be ad de 00 00 00 00\n");
}

TEST_CASE("every request and reply survives the wire", "[messaging][wire]") {
  SeededRandom random(11);
  for (int round = 0; round < 200; ++round) {
    const auto number = [&] { return random.next32(); };
    const MacAddress station{{0x02, 0, 0, 0, static_cast<std::uint8_t>(number()), 1}};
    const MacAddress group{{0x33, 0x33, 0, 0, static_cast<std::uint8_t>(number()), 1}};
    auto hello = samples::sample_hello();
    hello.features = random.next();
    hello.mode = random.below(2) == 0 ? Mode::rdma : Mode::send;
    hello.terms.max_frame_bytes = 82 + static_cast<std::uint32_t>(random.below(kMaxFrameBytes - 82 + 1));
    if (random.below(2) == 0) hello.terms.data_channel.reset();
    const RequestBody requests[] = {
        hello,
        SetMacAddress{station},
        SetMtu{68 + static_cast<std::uint32_t>(random.below(65'535 - 68 + 1))},
        LinkState{random.below(2) == 0, number(), 0},
        ReceiveFilter{std::vector<MacAddress>(random.below(kMaxUnicastFilters + 1), station),
                      std::vector<MacAddress>(random.below(kMaxMulticastFilters + 1), group), random.below(2) == 0,
                      random.below(2) == 0},
        VlanFilter{},
        VlanFilter{std::vector<std::uint16_t>{}},
        VlanFilter{std::vector<std::uint16_t>{1, static_cast<std::uint16_t>(2 + random.below(4092)), 4094}},
        Moderation{number(), number(), std::chrono::nanoseconds(random.below(100'000'001))},
        StatisticsReport{},
        StatisticsClear{},
        StatusReport{number(), "text"},
        Heartbeat{random.next(), std::chrono::milliseconds(random.below(60'001))},
        Reset{number(), ""},
    };
    for (const auto& body : requests) {
      const auto back = decode_request(static_cast<std::uint32_t>(request_of(body)), encode(body));
      REQUIRE(back);
      CHECK((*back == body));
    }
    auto answer = samples::sample_hello_reply();
    answer.features = random.next();
    answer.terms = hello.terms;
    const std::pair<CfgRequest, ReplyBody> replies[] = {
        {CfgRequest::hello, answer},
        {CfgRequest::set_mac_address, MacAddressReply{station}},
        {CfgRequest::set_mtu, MtuReply{1500}},
        {CfgRequest::link_state, Acknowledged{}},
        {CfgRequest::set_receive_filter, Acknowledged{}},
        {CfgRequest::set_vlan_filter, Acknowledged{}},
        {CfgRequest::set_moderation, Acknowledged{}},
        {CfgRequest::statistics_report,
         Statistics{.counters = {{"a", random.next()}, {"b", random.next()}},
                    .counted_for = splitnic::Duration(static_cast<splitnic::Duration::rep>(random.next() >> 1U)),
                    .from_peer = {random.next(), random.next(), random.next(), random.next()},
                    .to_peer = {random.next(), random.next(), random.next(), random.next()},
                    .from_interface = {random.next(), random.next(), random.next(), random.next()},
                    .to_interface = {random.next(), random.next(), random.next(), random.next()}}},
        {CfgRequest::statistics_clear, Statistics{}},
        {CfgRequest::status_report, Acknowledged{}},
        {CfgRequest::heartbeat, HeartbeatReply{random.next()}},
        {CfgRequest::reset, Acknowledged{}},
    };
    for (const auto& [request, body] : replies) {
      const auto back = decode_reply(request, encode(body));
      REQUIRE(back);
      CHECK((*back == body));
    }
  }
}

TEST_CASE("each field of the hello is checked at its boundaries", "[messaging][wire]") {
  using Hello = schema::HelloRequest::Builder;
  const struct {
    const char* field;
    std::function<void(Hello, std::uint64_t)> set;
    std::vector<NumberCase> cases;
  } fields[] = {
      {"lowest version",
       [](Hello h, auto v) { h.setLowestVersion(static_cast<std::uint16_t>(v)); },
       {{0, false}, {1, true}, {2, false}}},
      {"highest version",
       [](Hello h, auto v) { h.setHighestVersion(static_cast<std::uint16_t>(v)); },
       {{0, false}, {1, true}, {0xffff, true}}},
      {"role",
       [](Hello h, auto v) { h.setRole(static_cast<schema::Role>(v)); },
       {{0, false}, {1, true}, {2, true}, {3, false}, {0xffff, false}}},
      {"mode",
       [](Hello h, auto v) { h.setMode(static_cast<schema::Mode>(v)); },
       {{0, false}, {1, true}, {2, true}, {3, false}, {0xffff, false}}},
      {"features", [](Hello h, auto v) { h.setFeatures(v); }, {{0, true}, {~0ULL, true}}},
      {"requested MAC",
       [](Hello h, auto v) { h.setRequestedMac(v); },
       {{0, true}, {1, true}, {kStation, true}, {kGroup, false}, {0xffff'ffff'ffff, false}, {1ULL << 48U, false}}},
      {"max message bytes",
       [](Hello h, auto v) { h.getTerms().setMaxMessageBytes(static_cast<std::uint32_t>(v)); },
       {{0, false}, {511, false}, {512, true}, {1U << 20U, true}, {(1U << 20U) + 1, false}, {0xffff'ffff, false}}},
      {"max list entries",
       [](Hello h, auto v) { h.getTerms().setMaxListEntries(static_cast<std::uint32_t>(v)); },
       {{0, false}, {1, true}, {65'536, true}, {65'537, false}}},
      {"max frame bytes",
       [](Hello h, auto v) { h.getTerms().setMaxFrameBytes(static_cast<std::uint32_t>(v)); },
       {{0, false}, {81, false}, {82, true}, {65'600, true}, {65'601, false}, {0xffff'ffff, false}}},
      {"cell bytes",
       [](Hello h, auto v) { h.getTerms().setCellBytes(static_cast<std::uint32_t>(v)); },
       {{0, false}, {63, false}, {64, true}, {65'520, true}, {65'521, false}}},
      {"receive depth",
       [](Hello h, auto v) { h.getTerms().setReceiveDepth(static_cast<std::uint32_t>(v)); },
       {{0, false}, {1, true}, {65'536, true}, {65'537, false}}},
      {"data channel", [](Hello h, auto v) { h.getTerms().setDataChannel(v != 0); }, {{0, false}, {1, true}}},
      {"data queue pair",
       [](Hello h, auto v) { h.getTerms().setDataQueuePair(static_cast<std::uint32_t>(v)); },
       {{0, false}, {1, true}, {0xff'ffff, true}, {0x100'0000, false}}},
      {"data receive depth",
       [](Hello h, auto v) { h.getTerms().setDataReceiveDepth(static_cast<std::uint32_t>(v)); },
       {{0, false}, {1, true}, {65'536, true}, {65'537, false}}},
      {"initial PSN",
       [](Hello h, auto v) { h.getTerms().setInitialPsn(static_cast<std::uint32_t>(v)); },
       {{0, true}, {0xffff'ffff, true}}},
  };
  for (const auto& field : fields) {
    for (const auto& [value, good] : field.cases) {
      CAPTURE(field.field, value);
      const auto data = hello_with([&](Hello hello) { field.set(hello, value); });
      CHECK(status_of(CfgRequest::hello, data) == (good ? "ok" : "invalid parameter"));
    }
  }
}

TEST_CASE("without a data channel the hello says nothing about one", "[messaging][wire]") {
  const auto without = [](std::uint32_t queue_pair, std::uint32_t depth, std::uint32_t psn) {
    return hello_with([&](schema::HelloRequest::Builder hello) {
      hello.getTerms().setDataChannel(false);
      hello.getTerms().setDataQueuePair(queue_pair);
      hello.getTerms().setDataReceiveDepth(depth);
      hello.getTerms().setInitialPsn(psn);
    });
  };
  CHECK(accepted(CfgRequest::hello, without(0, 0, 0)));
  CHECK(status_of(CfgRequest::hello, without(1, 0, 0)) == "invalid parameter");
  CHECK(status_of(CfgRequest::hello, without(0, 1, 0)) == "invalid parameter");
  CHECK(status_of(CfgRequest::hello, without(0, 0, 1)) == "invalid parameter");
}

TEST_CASE("names are short printable UTF-8 without slashes", "[messaging][wire]") {
  CHECK(is_valid_name("host-1"));
  CHECK(is_valid_name("Büro 3 \xf0\x9f\x96\xa7"));
  CHECK(is_valid_name(std::string(64, 'x')));
  CHECK_FALSE(is_valid_name(""));
  CHECK_FALSE(is_valid_name(std::string(65, 'x')));
  CHECK_FALSE(is_valid_name("a/b"));
  CHECK_FALSE(is_valid_name("a\nb"));
  CHECK_FALSE(is_valid_name(std::string_view("a\0b", 3)));
  CHECK_FALSE(is_valid_name("a\x7f"));
  CHECK_FALSE(is_valid_name("a\xc2\x80"));         // a C1 control character
  CHECK_FALSE(is_valid_name("a\xc3"));             // cut short
  CHECK_FALSE(is_valid_name("\xc0\xaf"));          // an overlong '/'
  CHECK_FALSE(is_valid_name("\xed\xa0\x80"));      // a surrogate
  CHECK_FALSE(is_valid_name("\xf4\x90\x80\x80"));  // beyond the last code point
  CHECK_FALSE(is_valid_name("\xff"));
  for (const char* name : {"", "a/b", "a\tb", "\xc3"}) {
    const auto data = hello_with([&](auto hello) { hello.setName(name); });
    CHECK(status_of(CfgRequest::hello, data) == "invalid parameter");
  }
}

TEST_CASE("the other requests are checked at their boundaries", "[messaging][wire]") {
  using Request = CfgRequest;
  const auto moderation = [](std::uint64_t nanoseconds) {
    return built<schema::Moderation>([&](auto out) { out.setNanoseconds(nanoseconds); });
  };
  const auto heartbeat = [](std::uint32_t milliseconds) {
    return built<schema::HeartbeatRequest>([&](auto out) { out.setNextMs(milliseconds); });
  };
  const auto max_mtu = [](std::uint32_t mtu) {
    return built<schema::LinkState>([&](auto out) { out.setMaxMtu(mtu); });
  };
  std::vector<std::uint16_t> all_vlans(4094);
  for (std::size_t i = 0; i < all_vlans.size(); ++i) all_vlans[i] = static_cast<std::uint16_t>(i + 1);
  const struct {
    Request request;
    Bytes data;
    bool accepted;
  } cases[] = {
      {Request::set_mac_address, mac_data(0), false},
      {Request::set_mac_address, mac_data(1), true},
      {Request::set_mac_address, mac_data(kStation), true},
      {Request::set_mac_address, mac_data(kGroup), false},
      {Request::set_mac_address, mac_data(0xffff'ffff'ffff), false},
      {Request::set_mac_address, mac_data(1ULL << 48U), false},
      {Request::set_mtu, mtu_data(0), false},
      {Request::set_mtu, mtu_data(67), false},
      {Request::set_mtu, mtu_data(68), true},
      {Request::set_mtu, mtu_data(65'535), true},
      {Request::set_mtu, mtu_data(65'536), false},
      {Request::set_mtu, mtu_data(0xffff'ffff), false},
      {Request::link_state, max_mtu(0), true},
      {Request::link_state, max_mtu(67), false},
      {Request::link_state, max_mtu(65'535), true},
      {Request::link_state, max_mtu(65'536), false},
      {Request::set_receive_filter, filter_data(0, 0, 0, 0), true},
      {Request::set_receive_filter, filter_data(64, kStation, 256, kGroup), true},
      {Request::set_receive_filter, filter_data(65, kStation, 0, 0), false},
      {Request::set_receive_filter, filter_data(0, 0, 257, kGroup), false},
      {Request::set_receive_filter, filter_data(1, kGroup, 0, 0), false},
      {Request::set_receive_filter, filter_data(1, 0, 0, 0), false},
      {Request::set_receive_filter, filter_data(0, 0, 1, kStation), false},
      {Request::set_receive_filter, filter_data(0, 0, 1, kGroup | 1ULL << 48U), false},
      {Request::set_vlan_filter, vlan_data({}), true},
      {Request::set_vlan_filter, vlan_data({0}), false},
      {Request::set_vlan_filter, vlan_data({1}), true},
      {Request::set_vlan_filter, vlan_data({4094}), true},
      {Request::set_vlan_filter, vlan_data({4095}), false},
      {Request::set_vlan_filter, vlan_data({0xffff}), false},
      {Request::set_vlan_filter, vlan_data({5, 5}), false},
      {Request::set_vlan_filter, vlan_data({6, 5}), false},
      {Request::set_vlan_filter, vlan_data(all_vlans), true},
      {Request::set_moderation, moderation(0), true},
      {Request::set_moderation, moderation(100'000'000), true},
      {Request::set_moderation, moderation(100'000'001), false},
      {Request::set_moderation, moderation(~0ULL), false},
      {Request::heartbeat, heartbeat(0), true},
      {Request::heartbeat, heartbeat(60'000), true},
      {Request::heartbeat, heartbeat(60'001), false},
      {Request::heartbeat, heartbeat(~0U), false},
      {Request::status_report, status_data(""), true},
      {Request::status_report, status_data(std::string(256, 'x')), true},
      {Request::status_report, status_data(std::string(257, 'x')), false},
      {Request::status_report, status_data("two\nlines"), false},
      {Request::reset, status_data(std::string(257, 'x')), false},
  };
  std::size_t row = 0;
  for (const auto& one : cases) {
    CAPTURE(row++, to_string(one.request));
    CHECK(status_of(one.request, one.data) == (one.accepted ? "ok" : "invalid parameter"));
  }
}

TEST_CASE("the hello's reply and the other replies are checked too", "[messaging][wire]") {
  const auto refused = [](CfgRequest request, const Bytes& data) {
    const auto body = decode_reply(request, data);
    return !body && body.error().status == CfgStatus::invalid_parameter;
  };
  auto reply = samples::sample_hello_reply();
  const auto with = [&](auto change) {
    auto changed = reply;
    change(changed);
    return encode(ReplyBody(changed));
  };
  CHECK_FALSE(refused(CfgRequest::hello, with([](HelloReply&) {})));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.version = 0; })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.role = static_cast<Role>(0); })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.mode = static_cast<Mode>(3); })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.assigned_mac = {}; })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.max_mtu = 67; })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.max_mtu = 65'536; })));
  CHECK(refused(CfgRequest::hello, with([](HelloReply& r) { r.terms.cell_bytes = 0; })));
  CHECK(refused(CfgRequest::set_mac_address, mac_data(kGroup)));
  CHECK(refused(CfgRequest::set_mtu, mtu_data(67)));
  const auto counters = [](unsigned count, const char* name) {
    return built<schema::Statistics>([&](schema::Statistics::Builder out) {
      auto list = out.initCounters(count);
      for (auto counter : list) counter.setName(name);
    });
  };
  CHECK_FALSE(refused(CfgRequest::statistics_report, counters(512, "n")));
  CHECK(refused(CfgRequest::statistics_report, counters(513, "n")));
  CHECK(refused(CfgRequest::statistics_clear, counters(1, "")));
  const auto counted_for = [](std::uint64_t nanoseconds) {
    return built<schema::Statistics>([&](schema::Statistics::Builder out) { out.setCountedForNs(nanoseconds); });
  };
  CHECK_FALSE(refused(CfgRequest::statistics_report, counted_for((std::uint64_t{1} << 63U) - 1)));
  CHECK(refused(CfgRequest::statistics_report, counted_for(std::uint64_t{1} << 63U)));
}

TEST_CASE("an unknown request is told apart from a malformed one", "[messaging][wire]") {
  for (const std::uint32_t code : {0U, 13U, 0xffff'ffffU}) {
    const auto body = decode_request(code, {});
    REQUIRE_FALSE(body);
    CHECK(body.error().status == CfgStatus::unknown_request);
  }
  for (std::uint32_t code = 1; code <= kLastCfgRequest; ++code) {
    CHECK(status_of(static_cast<CfgRequest>(code), {}) == "malformed");
    CHECK(status_of(static_cast<CfgRequest>(code), Bytes(7)) == "malformed");
  }
}

TEST_CASE("bytes after the Cap'n Proto message are malformed", "[messaging][wire]") {
  auto data = encode(SetMtu{1500});
  data.resize(data.size() + 8);
  CHECK(status_of(CfgRequest::set_mtu, data) == "malformed");
}

TEST_CASE("data that points to itself or outside is malformed, not endless", "[messaging][wire]") {
  // One segment; the root is a struct pointer far outside, then one with a list of 2^29 - 1 structs without a word.
  CHECK(status_of(CfgRequest::set_mtu, samples::from_hex("00000000 01000000 fcffff7f 01000000")) == "malformed");
  CHECK(status_of(CfgRequest::hello, samples::from_hex("00000000 ffffffff 0000000000000000")) == "malformed");
  CHECK(status_of(CfgRequest::hello, samples::from_hex("ffffffff 00000000 0000000000000000")) == "malformed");
  const auto amplified = decode_reply(CfgRequest::statistics_report,
                                      samples::from_hex("00000000 03000000 00000000 00000100 01000000 07000000"
                                                        "fcffff7f 00000000"));
  REQUIRE_FALSE(amplified);
}

TEST_CASE("no truncation of the data decodes, and no damage upsets the decoder", "[messaging][wire]") {
  SeededRandom random(5);
  std::size_t damaged_but_valid = 0;
  for (const auto& sample : samples::every_message()) {
    const auto message = decode(sample.bytes, Limits{}).value();
    const auto* request = std::get_if<CfgUtilRequest>(&message);
    if (request == nullptr) continue;
    CAPTURE(sample.name);
    for (std::size_t bytes = 0; bytes < request->data.size(); ++bytes) {
      const Bytes cut(request->data.begin(), request->data.begin() + static_cast<std::ptrdiff_t>(bytes));
      CHECK_FALSE(decode_request(request->code, cut));
    }
    for (int round = 0; round < 2000; ++round) {
      Bytes damaged(request->data.begin(), request->data.end());
      for (std::uint64_t i = 0; i <= random.below(4); ++i) {
        damaged[random.below(damaged.size())] ^= static_cast<std::byte>(1 + random.below(255));
      }
      // What still decodes is valid, so that it can be encoded again.
      if (const auto body = decode_request(request->code, damaged)) {
        ++damaged_but_valid;
        const auto again = decode_request(request->code, encode(*body));
        REQUIRE(again);
        CHECK((*again == *body));
      }
    }
  }
  CHECK(damaged_but_valid > 0);
}

TEST_CASE("fields that a later version appends are ignored", "[messaging][wire]") {
  // An Mtu of two data words, where version 1 knows half of the first.
  const auto body = decode_request(static_cast<std::uint32_t>(CfgRequest::set_mtu),
                                   samples::from_hex("00000000 03000000 00000000 02000000"
                                                     "dc050000 ffffffff ffffffff ffffffff"));
  REQUIRE(body);
  CHECK(std::get<SetMtu>(*body) == SetMtu{1500});
}

TEST_CASE("a refusal says why, whatever it is made of", "[messaging][wire]") {
  CHECK(decode_refusal(encode_refusal("the name is in use")) == "the name is in use");
  CHECK(decode_refusal(encode_refusal("two\nlines")) == "two?lines");
  CHECK(decode_refusal(encode_refusal(std::string(1000, 'x'))) == std::string(kMaxTextBytes, 'x'));
  CHECK(decode_refusal({}).empty());
  CHECK(decode_refusal(Bytes(3)).empty());
}

TEST_CASE("the highest common version wins", "[messaging][wire]") {
  const auto common = [](std::uint16_t lowest, std::uint16_t highest) {
    HelloRequest hello;
    hello.lowest_version = lowest;
    hello.highest_version = highest;
    return common_version(hello);
  };
  CHECK(common(1, 1) == std::optional<std::uint16_t>(1));
  CHECK(common(1, 9) == std::optional<std::uint16_t>(1));
  CHECK_FALSE(common(2, 9));
}

}  // namespace splitnic::messaging::wire::wire_cfgutil_test
