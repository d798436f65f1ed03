#include "iounit/ip_guard.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <span>

#include "tests/unit/common/packet_builder.h"
#include "unit_bench.h"

namespace splitnic::iounit::test::ip_guard_test {
namespace {

using namespace splitnic::test;

IpClaim claim_of(const IpGuard& guard, const Bytes& frame) {
  return forbidden_claim(guard, *frame::parse_ethernet(frame), frame);
}

/// The addresses that packet_builder's frames come from, and a link-local one.
IpGuard own_addresses() { return {.addresses = {*parse_ip_address("10.0.0.1"), *parse_ip_address("2001:db8::1")}}; }

constexpr std::uint32_t kAsked = 0x0a0000fe;

Bytes arp(const MacAddress& source, const MacAddress& sender, std::uint32_t address, unsigned operation = 1,
          std::uint32_t target = kAsked) {
  Bytes message;
  put16(message, 1);
  put16(message, 0x0800);
  put8(message, 6);
  put8(message, 4);
  put16(message, operation);
  for (const auto octet : sender.octets) put8(message, octet);
  put32(message, address);
  put(message, Bytes(6));
  put32(message, target);
  Below below;
  below.source = source;
  return ethernet_frame(below, 0x0806, message);
}

/// An ICMPv6 message of this type about this address.
Bytes icmpv6(unsigned type, const IpAddress& about, Below below = {}) {
  Bytes message;
  put8(message, type);
  put(message, Bytes(7));
  put(message, about.octets);
  below.ip_version = 6;
  return ip_frame(below, 58, message);
}

/// The same from the unspecified address: such a neighbour solicitation looks for others who have the address.
Bytes icmpv6_from_none(unsigned type, const IpAddress& about) {
  Bytes frame = icmpv6(type, about);
  std::ranges::fill(std::span(frame).subspan(14 + 8, 16), std::byte{});
  return frame;
}

Bytes udp(int version, std::uint16_t from, std::uint16_t to, Below below = {}) {
  Bytes message;
  put16(message, from);
  put16(message, to);
  put(message, Bytes(8));
  below.ip_version = version;
  return ip_frame(below, 17, message);
}

Bytes udp_from(int version, std::uint16_t port, const Below& below = {}) { return udp(version, port, 5000, below); }

TEST_CASE("IP addresses are read and written", "[iounit][guard]") {
  for (const char* text : {"10.1.2.3", "fd00::1", "::"}) {
    REQUIRE(parse_ip_address(text).has_value());
    CHECK(to_string(*parse_ip_address(text)) == text);
  }
  for (const char* text : {"", "10.1.2", "10.1.2.256", "fd00::1/64", "name"}) CHECK_FALSE(parse_ip_address(text));
}

TEST_CASE("without a guard a host may claim anything", "[iounit][guard]") {
  const IpGuard none;
  const MacAddress mac = station(1);
  CHECK(claim_of(none, arp(mac, station(2), 0x0a0000fe)) == IpClaim::none);
  CHECK(claim_of(none, icmpv6(134, {})) == IpClaim::none);
  CHECK(claim_of(none, udp_from(4, 67)) == IpClaim::none);
}

TEST_CASE("a host with addresses sends ARP for these alone, and from its own hardware address", "[iounit][guard]") {
  const IpGuard guard = own_addresses();
  const MacAddress mac = station(1);
  for (const unsigned operation : {1U, 2U}) {
    CHECK(claim_of(guard, arp(mac, mac, 0x0a000001, operation)) == IpClaim::none);
    CHECK(claim_of(guard, arp(mac, mac, 0x0a0000fe, operation)) == IpClaim::address);  // the gateway's
    CHECK(claim_of(guard, arp(mac, station(2), 0x0a000001, operation)) == IpClaim::address);
  }
  Bytes cut = arp(mac, mac, 0x0a000001);
  cut.resize(14 + 27);
  CHECK(claim_of(guard, cut) == IpClaim::address);
  Bytes strange = arp(mac, mac, 0x0a000001);
  strange[14 + 4] = std::byte{8};  // a hardware address of eight bytes
  CHECK(claim_of(guard, strange) == IpClaim::address);
}

TEST_CASE("a host with addresses looks for others who have these alone", "[iounit][guard]") {
  const IpGuard guard = own_addresses();
  const MacAddress mac = station(1);
  // A probe counts as a claim at whoever is probing the same address (RFC 5227, 2.1.1; RFC 4862, 5.4.3).
  for (const unsigned operation : {1U, 2U}) {
    CHECK(claim_of(guard, arp(mac, mac, 0, operation, 0x0a000001)) == IpClaim::none);
    CHECK(claim_of(guard, arp(mac, mac, 0, operation, 0)) == IpClaim::none);
    CHECK(claim_of(guard, arp(mac, mac, 0, operation, kAsked)) == IpClaim::address);
  }
  CHECK(claim_of(guard, icmpv6_from_none(135, *parse_ip_address("2001:db8::1"))) == IpClaim::none);
  CHECK(claim_of(guard, icmpv6_from_none(135, *parse_ip_address("fe80::7"))) == IpClaim::none);
  CHECK(claim_of(guard, icmpv6_from_none(135, *parse_ip_address("2001:db8::fe"))) == IpClaim::address);
  CHECK(claim_of(guard, icmpv6_from_none(133, *parse_ip_address("2001:db8::fe"))) == IpClaim::none);
  Below below;
  below.ip_version = 6;
  const Bytes cut = ip_frame(below, 58, Bytes{std::byte{135}, {}, {}, {}});
  CHECK(claim_of(guard, cut) == IpClaim::none);  // from its own address: it asks, for whatever
  Bytes cut_probe = cut;
  std::ranges::fill(std::span(cut_probe).subspan(14 + 8, 16), std::byte{});
  CHECK(claim_of(guard, cut_probe) == IpClaim::address);
  CHECK(claim_of({}, arp(mac, mac, 0)) == IpClaim::none);
  CHECK(claim_of({}, icmpv6_from_none(135, *parse_ip_address("2001:db8::fe"))) == IpClaim::none);
}

TEST_CASE("a host with addresses sends IP packets and neighbour advertisements for these alone", "[iounit][guard]") {
  const IpGuard guard = own_addresses();
  CHECK(claim_of(guard, udp_from(4, 5000)) == IpClaim::none);
  CHECK(claim_of(guard, udp_from(6, 5000)) == IpClaim::none);
  IpGuard other = guard;
  other.addresses = {*parse_ip_address("10.0.0.7"), *parse_ip_address("2001:db8::7")};
  CHECK(claim_of(other, udp_from(4, 5000)) == IpClaim::address);
  CHECK(claim_of(other, udp_from(6, 5000)) == IpClaim::address);
  CHECK(claim_of(guard, icmpv6(136, *parse_ip_address("2001:db8::1"))) == IpClaim::none);
  CHECK(claim_of(guard, icmpv6(136, *parse_ip_address("fe80::1"))) == IpClaim::none);
  CHECK(claim_of(guard, icmpv6(136, *parse_ip_address("2001:db8::fe"))) == IpClaim::address);
  CHECK(claim_of(guard, icmpv6(135, *parse_ip_address("2001:db8::fe"))) == IpClaim::none);  // it asks for it
  Bytes cut = udp_from(4, 5000);
  cut.resize(14 + 19);
  CHECK(claim_of(guard, cut) == IpClaim::address);
  Below hidden;
  hidden.ipv6_extensions = {{.type = 0, .body = Bytes(6)}, {.type = 60, .body = Bytes(14)}};
  CHECK(claim_of(guard, icmpv6(136, *parse_ip_address("2001:db8::fe"), hidden)) == IpClaim::address);
}

TEST_CASE("a host that is no router sends no advertisement, behind extension headers and fragments neither",
          "[iounit][guard]") {
  const IpGuard guard{.addresses = {}, .dhcp_server = true, .router = false};
  CHECK(claim_of(guard, icmpv6(134, {})) == IpClaim::router);
  CHECK(claim_of(guard, icmpv6(137, {})) == IpClaim::router);
  CHECK(claim_of(guard, icmpv6(133, {})) == IpClaim::none);
  CHECK(claim_of(guard, icmpv6(128, {})) == IpClaim::none);
  Below tagged;
  tagged.vlans = {{0x8100, 5}};
  tagged.ipv6_extensions = {{.type = 60, .body = Bytes(6)}};
  CHECK(claim_of(guard, icmpv6(134, {}, tagged)) == IpClaim::router);
  Below fragment;
  fragment.ipv6_extensions = {{.type = 44, .body = Bytes(6)}};  // offset 0
  CHECK(claim_of(guard, icmpv6(134, {}, fragment)) == IpClaim::router);
  CHECK(claim_of(guard, icmpv6(128, {}, fragment)) == IpClaim::none);
  fragment.ipv6_extensions.push_back(
      {.type = 60, .body = Bytes(6)});  // what it carries is in a later fragment, perhaps
  CHECK(claim_of(guard, icmpv6(128, {}, fragment)) == IpClaim::router);
  Below later;
  later.ipv6_extensions = {{.type = 44, .body = {std::byte{1}, std::byte{0}, {}, {}, {}, {}}}};
  CHECK(claim_of(guard, icmpv6(134, {}, later)) == IpClaim::none);
}

TEST_CASE("a message that the unit can't see, but a receiver can, counts as what the host may not send",
          "[iounit][guard]") {
  const IpGuard no_router{.addresses = {}, .dhcp_server = true, .router = false};
  const IpGuard no_server{.addresses = {}, .dhcp_server = false, .router = true};
  Below many;  // more extension headers than are parsed
  many.ipv6_extensions.assign(9, {.type = 60, .body = Bytes(6)});
  Below options;
  options.ipv6_extensions = {{.type = 0, .body = Bytes(6)}};
  Bytes without_length = icmpv6(134, {}, options);  // Linux takes all of the frame
  set16(without_length, 14 + 4, 0);
  Bytes server_without_length = udp_from(6, 547, options);
  set16(server_without_length, 14 + 4, 0);
  Below fragment;  // the first one, with options before the ports
  fragment.ipv6_extensions = {{.type = 44, .body = Bytes(6)}, {.type = 60, .body = Bytes(6)}};
  for (const Bytes& advertisement : {icmpv6(134, {}, many), without_length, icmpv6(134, {}, fragment)}) {
    CHECK(claim_of(no_router, advertisement) == IpClaim::router);
    CHECK(claim_of({}, advertisement) == IpClaim::none);
    CHECK(claim_of(own_addresses(), advertisement) == IpClaim::address);
  }
  for (const Bytes& answer : {udp_from(6, 547, many), server_without_length, udp_from(6, 547, fragment)}) {
    CHECK(claim_of(no_server, answer) == IpClaim::dhcp_server);
    CHECK(claim_of({}, answer) == IpClaim::none);
  }
  Below tags;  // Linux removes any number of priority tags
  tags.vlans.assign(frame::kMaxVlanTags + 1, {0x8100, 0});
  CHECK(claim_of(no_router, icmpv6(134, {}, tags)) == IpClaim::router);
  CHECK(claim_of(no_server, udp_from(4, 67, tags)) == IpClaim::dhcp_server);
  CHECK(claim_of(own_addresses(), udp_from(4, 5000, tags)) == IpClaim::address);
  CHECK(claim_of({}, udp_from(4, 67, tags)) == IpClaim::none);
  Below eight;
  eight.ipv6_extensions.assign(8, {.type = 60, .body = Bytes(6)});
  CHECK(claim_of(no_router, icmpv6(134, {}, eight)) == IpClaim::router);
  CHECK(claim_of(no_router, icmpv6(128, {}, eight)) == IpClaim::none);
  CHECK(claim_of(no_server, udp_from(6, 546, eight)) == IpClaim::none);
}

/// The frame with an 802.3 length in place of its EtherType, and headers of LLC and SNAP in front of it.
Bytes behind_snap(const Bytes& frame, std::initializer_list<unsigned> llc = {0xaa, 0xaa, 3, 0, 0, 0},
                  std::size_t tags = 0, unsigned length = 100) {
  const auto type_at = static_cast<std::ptrdiff_t>(12 + 4 * tags);
  Bytes wrapped(frame.begin(), frame.begin() + type_at);
  put16(wrapped, static_cast<std::uint16_t>(length));
  for (const unsigned octet : llc) put8(wrapped, octet);
  wrapped.insert(wrapped.end(), frame.begin() + type_at, frame.end());
  return wrapped;
}

TEST_CASE("a message behind LLC and SNAP headers counts as one behind an EtherType", "[iounit][guard]") {
  const IpGuard addresses = own_addresses();
  const IpGuard no_router{.addresses = {}, .dhcp_server = true, .router = false};
  const IpGuard no_server{.addresses = {}, .dhcp_server = false, .router = true};
  const MacAddress mac = station(1);
  const Bytes foreign_arp = arp(mac, mac, 0x0a0000fe);
  CHECK(claim_of(addresses, behind_snap(foreign_arp)) == IpClaim::address);
  CHECK(claim_of(addresses, behind_snap(arp(mac, mac, 0x0a000001))) == IpClaim::none);
  CHECK(claim_of(no_router, behind_snap(foreign_arp)) == IpClaim::none);
  CHECK(claim_of(no_server, behind_snap(udp_from(4, 67))) == IpClaim::dhcp_server);
  CHECK(claim_of(no_server, behind_snap(udp_from(4, 68))) == IpClaim::none);
  CHECK(claim_of(no_router, behind_snap(icmpv6(134, {}))) == IpClaim::router);
  CHECK(claim_of(no_router, behind_snap(icmpv6(128, {}))) == IpClaim::none);
  CHECK(claim_of({}, behind_snap(icmpv6(134, {}))) == IpClaim::none);
  // Of bridges (802.1H), with other lengths, control fields and service points, behind tags, with tags behind it.
  const std::initializer_list<unsigned> bridges{0xaa, 0xaa, 3, 0, 0, 0xf8};
  const std::initializer_list<unsigned> odd{0xab, 0xab, 0x13, 0, 0, 0};
  for (const auto& llc : {bridges, odd})
    CHECK(claim_of(no_router, behind_snap(icmpv6(134, {}), llc)) == IpClaim::router);
  for (const unsigned length : {0U, 1U, 0x5ffU}) {
    CHECK(claim_of(addresses, behind_snap(foreign_arp, bridges, 0, length)) == IpClaim::address);
  }
  Below tagged;
  tagged.vlans = {{0x8100, 0}};
  CHECK(claim_of(no_router, behind_snap(icmpv6(134, {}, tagged), bridges, 1)) == IpClaim::router);
  CHECK(claim_of(no_router, behind_snap(icmpv6(134, {}, tagged), bridges)) == IpClaim::router);
  CHECK(claim_of(no_server, behind_snap(udp_from(4, 67, tagged))) == IpClaim::dhcp_server);
  // No EtherType: another organisation's number, another protocol of LLC, a header that is cut off.
  CHECK(claim_of(addresses, behind_snap(foreign_arp, {0xaa, 0xaa, 3, 0, 0, 0x0c})) == IpClaim::none);
  CHECK(claim_of(addresses, behind_snap(foreign_arp, {0x42, 0x42, 3, 0, 0, 0})) == IpClaim::none);
  Bytes cut = behind_snap(foreign_arp);
  cut.resize(14 + 7);
  CHECK(claim_of(addresses, cut) == IpClaim::none);
  CHECK(claim_of(addresses, behind_snap(behind_snap(foreign_arp))) == IpClaim::none);  // no receiver looks so far
}

TEST_CASE("a host that is no DHCP server sends nothing from a server's port or to a client's", "[iounit][guard]") {
  const IpGuard guard{.addresses = {}, .dhcp_server = false, .router = true};
  CHECK(claim_of(guard, udp_from(4, 67)) == IpClaim::dhcp_server);
  CHECK(claim_of(guard, udp_from(6, 547)) == IpClaim::dhcp_server);
  CHECK(claim_of(guard, udp_from(4, 68)) == IpClaim::none);
  CHECK(claim_of(guard, udp_from(6, 546)) == IpClaim::none);
  CHECK(claim_of(guard, udp_from(4, 547)) == IpClaim::none);
  // A client looks at no source port.
  CHECK(claim_of(guard, udp(4, 5000, 68)) == IpClaim::dhcp_server);
  CHECK(claim_of(guard, udp(4, 68, 68)) == IpClaim::dhcp_server);
  CHECK(claim_of(guard, udp(6, 5000, 546)) == IpClaim::dhcp_server);
  CHECK(claim_of(guard, udp(4, 68, 67)) == IpClaim::none);
  CHECK(claim_of(guard, udp(6, 546, 547)) == IpClaim::none);
  CHECK(claim_of(guard, udp(4, 5000, 546)) == IpClaim::none);
  CHECK(claim_of(guard, udp(6, 5000, 68)) == IpClaim::none);
  Below first;
  first.ipv4_fragment = 0x2000;
  CHECK(claim_of(guard, udp_from(4, 67, first)) == IpClaim::dhcp_server);
  Below later;
  later.ipv4_fragment = 0x0001;
  CHECK(claim_of(guard, udp_from(4, 67, later)) == IpClaim::none);
  Bytes tiny;
  put16(tiny, 67);
  CHECK(claim_of(guard, ip_frame(first, 17, tiny)) == IpClaim::dhcp_server);
  // Some clients read headers themselves, and find the ports in packets that a stack would refuse.
  for (const unsigned version_and_words : {0x65U, 0x44U}) {
    Bytes damaged = udp(4, 5000, 68);
    damaged[14] = static_cast<std::byte>(version_and_words);
    CHECK(claim_of(guard, damaged) == IpClaim::dhcp_server);
    CHECK(claim_of({}, damaged) == IpClaim::none);
  }
}

TEST_CASE("the unit drops and counts forbidden claims, each under its cause", "[iounit][guard][drops]") {
  IoUnitOptions options;
  options.policy.others.ip.addresses = {*parse_ip_address("10.0.0.1")};
  options.policy.others.ip.dhcp_server = false;
  options.policy.others.ip.router = false;
  UnitBench bench(options);
  TestHost& a = bench.host_up("a");
  Below below;
  below.source = a.mac();
  bench.from_host(a, udp_from(4, 5000, below));
  bench.from_host(a, arp(a.mac(), a.mac(), 0x0a000001));
  CHECK(bench.lan.sent.size() == 2);
  bench.from_host(a, arp(a.mac(), a.mac(), 0x0a0000fe), 2);
  bench.from_host(a, udp_from(4, 67, below), 3);
  Below link_local = below;
  Bytes advertisement = icmpv6(134, {}, link_local);
  advertisement[14 + 8] = std::byte{0xfe};  // its source: fe80:...
  advertisement[14 + 9] = std::byte{0x80};
  bench.from_host(a, advertisement, 4);
  CHECK(bench.lan.sent.size() == 2);
  CHECK(bench.drops() ==
        Drops{{"a/from_host_ip_address", 2}, {"a/from_host_dhcp_server", 3}, {"a/from_host_router", 4}});
}

}  // namespace
}  // namespace splitnic::iounit::test::ip_guard_test
