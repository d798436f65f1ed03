// Frames with every kind of foreign address, tag and claim, from hosts and from the LAN, and requests for every kind of
// foreign address, name and user, drawn from a seed, beside a model of what may pass. The model knows the hosts and
// what the documentation promises, and shares no code with the unit. SPOOFED is how many frames (100 000); a hundredth
// as many requests.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "unit_bench.h"

namespace splitnic::iounit::test::io_unit_spoofing_test {
namespace {

/// One host for each kind of right. Every one has a user of its own.
enum Place : std::size_t { kPlain, kAccessHost, kTrunkHost, kGuarded, kNoGroups, kHosts, kLan = kHosts };
constexpr uid_t kFirstUser = 1000;
const char* const kNames[kHosts] = {"plain", "access", "trunk", "guarded", "no-groups"};
constexpr std::uint16_t kAccess = 10;
const std::set<std::uint16_t> kTrunk{10, 20};
constexpr std::uint16_t kQ = 0x8100;   // 802.1Q
constexpr std::uint16_t kAd = 0x88a8;  // 802.1ad

constexpr MacAddress kConfigured{{0x02, 0, 0, 0, 0x66, 1}};  // for a host that never comes
constexpr MacAddress kUnknown{{0x02, 0, 0, 0, 0x66, 2}};
constexpr MacAddress kGateway{{0x02, 0, 0, 0, 0x66, 3}};  // a station of the LAN, says the policy
constexpr MacAddress kZero{};
constexpr MacAddress kLinkLocal{{0x01, 0x80, 0xc2, 0, 0, 0x02}};
constexpr MacAddress kGroupV6{{0x33, 0x33, 0, 0, 0, 0x01}};
constexpr MacAddress kGroupLocal{{0x03, 0, 0, 0, 0, 0x07}};

std::size_t wanted_count() {
  const char* const text = std::getenv("SPOOFED");
  return text == nullptr ? 100'000 : std::strtoul(text, nullptr, 10);
}

// --- What a frame claims to be behind its addresses and tags

void put(Frame& frame, std::initializer_list<unsigned> octets) {
  for (const unsigned octet : octets) frame.push_back(static_cast<std::byte>(octet));
}

constexpr unsigned kOwn = 4;  // the last octet of the guarded host's addresses: 10.0.0.4 and fd00::4
constexpr unsigned kForeign = 1;

/// An ARP request from this hardware address, for 10.0.0.LAST.
Frame arp(const MacAddress& hardware, unsigned last, std::size_t bytes = 28) {
  Frame frame;
  put(frame, {0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1});
  for (const auto octet : hardware.octets) put(frame, {octet});
  put(frame, {10, 0, 0, last, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9});
  frame.resize(2 + bytes);
  return frame;
}

/// An ARP request from 0.0.0.0, which asks whether anybody has 10.0.0.LAST.
Frame arp_probe(const MacAddress& hardware, unsigned last) {
  Frame frame = arp(hardware, kOwn);
  std::fill_n(frame.begin() + 2 + 14, 4, std::byte{});
  frame.back() = static_cast<std::byte>(last);
  return frame;
}

/// UDP from 10.0.0.LAST, or from 0.0.0.0 if that is 0. fragment: flags and offset.
Frame ipv4(unsigned last, unsigned port, unsigned version_and_length = 0x45, unsigned fragment = 0, unsigned to = 9) {
  Frame frame;
  put(frame, {0x08, 0x00, version_and_length, 0, 0, 28, 0, 1, fragment >> 8U, fragment & 0xffU, 64, 17, 0, 0});
  put(frame, {last == 0 ? 0U : 10U, 0, 0, last, 10, 0, 0, 9});
  put(frame, {port >> 8U, port & 0xffU, to >> 8U, to & 0xffU, 0, 8, 0, 0});
  return frame;
}

/// From fd00::LAST, or from fe80::1 if that is 0. behind: what follows the header.
Frame ipv6(unsigned last, unsigned next, std::initializer_list<unsigned> behind) {
  Frame frame;
  put(frame, {0x86, 0xdd, 0x60, 0, 0, 0, 0, static_cast<unsigned>(behind.size()), next, 255});
  put(frame, {last == 0 ? 0xfeU : 0xfdU, last == 0 ? 0x80U : 0U, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  put(frame, {last == 0 ? 1U : last});
  put(frame, {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  put(frame, behind);
  return frame;
}

/// An ICMPv6 message about fd00::LAST.
Frame icmpv6(unsigned type, unsigned last) {
  return ipv6(0, 58, {type, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last});
}

/// A neighbour solicitation from ::, which asks whether anybody has fd00::LAST.
Frame ipv6_probe(unsigned last) {
  Frame frame = icmpv6(135, last);
  std::fill_n(frame.begin() + 2 + 8, 16, std::byte{});
  return frame;
}

/// Behind an 802.3 length, LLC and SNAP.
Frame behind_snap(const Frame& typed) {
  Frame frame;
  put(frame, {0, 100, 0xaa, 0xaa, 3, 0, 0, 0});
  frame.insert(frame.end(), typed.begin(), typed.end());
  return frame;
}

struct Claim {
  const char* what;
  const char* cause;  ///< under which the guarded host's frame is dropped; empty: it may pass
  Frame (*make)(const MacAddress& source);
};
const Claim kClaims[] = {
    {"nothing", "",
     [](const MacAddress&) {
       Frame frame;
       put(frame, {0x88, 0xb5, 1, 2, 3});
       return frame;
     }},
    {"ARP", "", [](const MacAddress& source) { return arp(source, kOwn); }},
    {"ARP of another", "from_host_ip_address", [](const MacAddress& source) { return arp(source, kForeign); }},
    {"ARP for another's hardware", "from_host_ip_address", [](const MacAddress&) { return arp(kUnknown, kOwn); }},
    {"ARP that is cut", "from_host_ip_address", [](const MacAddress& source) { return arp(source, kOwn, 20); }},
    {"an ARP probe", "", [](const MacAddress& source) { return arp_probe(source, kOwn); }},
    {"an ARP probe for another's", "from_host_ip_address",
     [](const MacAddress& source) { return arp_probe(source, kForeign); }},
    {"ARP behind SNAP", "", [](const MacAddress& source) { return behind_snap(arp(source, kOwn)); }},
    {"ARP of another behind SNAP", "from_host_ip_address",
     [](const MacAddress& source) { return behind_snap(arp(source, kForeign)); }},
    {"DHCP's server behind SNAP", "from_host_dhcp_server",
     [](const MacAddress&) { return behind_snap(ipv4(kOwn, 67)); }},
    {"a router advertisement behind SNAP", "from_host_router",
     [](const MacAddress&) { return behind_snap(icmpv6(134, kOwn)); }},
    {"IPv4", "", [](const MacAddress&) { return ipv4(kOwn, 5000); }},
    {"IPv4 of another", "from_host_ip_address", [](const MacAddress&) { return ipv4(kForeign, 5000); }},
    {"a DHCP request", "", [](const MacAddress&) { return ipv4(0, 68, 0x45, 0, 67); }},
    {"to DHCP's client", "from_host_dhcp_server", [](const MacAddress&) { return ipv4(kOwn, 5000, 0x45, 0, 68); }},
    {"DHCP's server", "from_host_dhcp_server", [](const MacAddress&) { return ipv4(kOwn, 67); }},
    {"DHCP's server in a first fragment", "from_host_dhcp_server",
     [](const MacAddress&) { return ipv4(kOwn, 67, 0x45, 0x2000); }},
    {"IPv4 with a damaged header", "from_host_ip_address", [](const MacAddress&) { return ipv4(kOwn, 5000, 0x41); }},
    {"IPv6", "",
     [](const MacAddress&) {
       return ipv6(kOwn, 17, {0x13, 0x88, 0, 9, 0, 8, 0, 0});
     }},
    {"IPv6 of another", "from_host_ip_address",
     [](const MacAddress&) {
       return ipv6(kForeign, 17, {0x13, 0x88, 0, 9, 0, 8, 0, 0});
     }},
    {"link-local IPv6", "",
     [](const MacAddress&) {
       return ipv6(0, 17, {0x13, 0x88, 0, 9, 0, 8, 0, 0});
     }},
    {"DHCPv6's server", "from_host_dhcp_server",
     [](const MacAddress&) {
       return ipv6(0, 17, {0x02, 0x23, 0, 9, 0, 8, 0, 0});
     }},
    {"to DHCPv6's client", "from_host_dhcp_server",
     [](const MacAddress&) {
       return ipv6(0, 17, {0x13, 0x88, 0x02, 0x22, 0, 8, 0, 0});
     }},
    {"a neighbour solicitation", "", [](const MacAddress&) { return icmpv6(135, kForeign); }},
    {"a neighbour solicitation from ::", "", [](const MacAddress&) { return ipv6_probe(kOwn); }},
    {"a neighbour solicitation from :: for another's", "from_host_ip_address",
     [](const MacAddress&) { return ipv6_probe(kForeign); }},
    {"a neighbour advertisement", "", [](const MacAddress&) { return icmpv6(136, kOwn); }},
    {"another's neighbour advertisement", "from_host_ip_address",
     [](const MacAddress&) { return icmpv6(136, kForeign); }},
    {"a router advertisement", "from_host_router", [](const MacAddress&) { return icmpv6(134, kOwn); }},
    {"a redirect", "from_host_router", [](const MacAddress&) { return icmpv6(137, kOwn); }},
    {"a router advertisement behind options", "from_host_router",
     [](const MacAddress&) {
       return ipv6(0, 0, {58, 0, 1, 4, 0, 0, 0, 0, 134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
     }},
    {"a router advertisement in a first fragment", "from_host_router",
     [](const MacAddress&) {
       return ipv6(0, 44, {58, 0, 0, 1, 0, 0, 0, 7, 134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
     }},
};

// --- Frames

struct Tag {
  std::uint16_t type = kQ;
  unsigned priority = 0;  ///< with the DEI bit: 0 to 15
  std::uint16_t vlan = 0;
};

/// What a frame is made of.
struct Spoof {
  std::size_t from = 0;  ///< the host that sends it, or kLan
  MacAddress source;
  MacAddress destination;
  std::vector<Tag> tags;
  const Claim* claim = nullptr;
};

Frame frame_of(const Spoof& spoof) {
  Frame frame;
  for (const auto octet : spoof.destination.octets) put(frame, {octet});
  for (const auto octet : spoof.source.octets) put(frame, {octet});
  for (const Tag& tag : spoof.tags) {
    put(frame, {tag.type / 256U, tag.type % 256U, tag.priority << 4U | tag.vlan / 256U, tag.vlan % 256U});
  }
  const Frame behind = spoof.claim->make(spoof.source);
  frame.insert(frame.end(), behind.begin(), behind.end());
  return frame;
}

struct Verdict {
  std::string cause{};                ///< of the drop; empty: none
  std::set<std::size_t> receivers{};  ///< hosts
  bool to_lan = false;
};

struct Spoofing {
  UnitBench bench{options(), 1500, 1};
  std::array<TestHost*, kHosts> hosts{};
  std::array<MacAddress, kHosts> macs{};
  SeededRandom random{20};
  std::map<std::string, std::uint64_t> expected;                // drops by "HOST/cause" or the LAN's cause
  std::set<std::pair<MacAddress, std::uint16_t>> lan_stations;  // heard on the LAN, by VLAN

  static IoUnitOptions options() {
    IoUnitOptions options;
    options.policy.others.broadcasts = 0;  // no limits of rate
    options.policy.others.multicast_copies = 0;
    options.share.wasteful_seconds = ~0U;  // none is ejected for it here
    options.policy.lan_addresses = {kGateway};
    options.policy.allow("absent", kConfigured);
    for (std::size_t host = kAccessHost; host < kHosts; ++host) {
      HostRule rule;
      rule.name = kNames[host];
      rule.user = kFirstUser + static_cast<uid_t>(host);
      rule.rights = options.policy.others;
      options.policy.hosts.push_back(rule);
    }
    const auto rights_of = [&](Place host) -> HostRights& {
      return std::ranges::find(options.policy.hosts, kNames[host], &HostRule::name)->rights;
    };
    rights_of(kAccessHost).access_vlan = kAccess;
    rights_of(kTrunkHost).trunk_vlans = {kTrunk.begin(), kTrunk.end()};
    rights_of(kGuarded).ip = {.addresses = {*parse_ip_address("10.0.0.4"), *parse_ip_address("fd00::4")},
                              .dhcp_server = false,
                              .router = false};
    rights_of(kNoGroups).multicast = false;
    return options;
  }

  Spoofing() {
    for (std::size_t index = 0; index < kHosts; ++index) {
      hosts[index] = &bench.host_up_as(kFirstUser + static_cast<uid_t>(index), kNames[index]);
      macs[index] = hosts[index]->mac();
    }
    REQUIRE(bench.grants(*hosts[kGuarded], wire::ReceiveFilter{.multicast = {group(1)}}));
    bench.lan.offload = frame::FrameOffload{};  // its frames are complete
    bench.from_lan(make_frame(station(2), station(1)));
    expected["lan_unwanted"] = 1;
    lan_stations.insert({station(1), std::uint16_t{0}});
    forget();
  }
  void forget() {
    for (TestHost* const host : hosts) {
      host->frames.clear();
      host->offloads.clear();
    }
    bench.lan.sent.clear();
    bench.lan.sent_offloads.clear();
  }

  /// The address of a host that has just died: it is still kept for its user.
  MacAddress held_address() {
    TestHost& gone = bench.host_up_as(kFirstUser + 50, "gone");
    const MacAddress held = gone.mac();
    gone.die();
    bench.settle();
    return held;
  }

  /// Messages that no host may send in any state, as the unit has counted them.
  [[nodiscard]] std::uint64_t bad_messages() {
    std::uint64_t sum = bench.unit().departed().session.bad_messages;
    for (const auto& host : bench.unit().hosts()) sum += host ? host->session().counters().bad_messages : 0;
    return sum;
  }

  template <class Choices>
  const auto& any_of(const Choices& choices) {
    return *(std::begin(choices) + static_cast<std::ptrdiff_t>(random.below(std::size(choices))));
  }
  MacAddress any_address() {
    const MacAddress all[] = {macs[0],    macs[1],  macs[2],     macs[3],  macs[4],    station(1),
                              station(2), kGateway, kConfigured, kUnknown, kZero,      kBroadcastMac,
                              kLinkLocal, group(1), group(2),    kGroupV6, kGroupLocal};
    return any_of(all);
  }
  Spoof any_spoof() {
    Spoof spoof;
    spoof.from = random.below(kHosts + 1);
    spoof.source = random.below(2) != 0 ? any_address() : spoof.from == kLan ? station(1) : macs[spoof.from];
    spoof.destination = any_address();
    const std::uint16_t vlans[] = {0, kAccess, 20, 30, 4094};
    const std::uint16_t types[] = {kQ, kQ, kQ, kAd};
    for (std::size_t tags = random.below(4); tags > 0; --tags) {
      spoof.tags.push_back({any_of(types), static_cast<unsigned>(random.below(16)), any_of(vlans)});
    }
    spoof.claim = random.below(2) == 0 ? &kClaims[0] : &any_of(kClaims);
    return spoof;
  }

  /// The frame as it travels in the unit; nullopt: the host may not send these tags.
  static std::optional<Spoof> inside(Spoof spoof) {
    const bool has_vlan = !spoof.tags.empty() && spoof.tags[0].vlan != 0;
    if (spoof.from == kAccessHost) {
      const bool bare = spoof.tags.empty();
      const bool priority_tag = spoof.tags.size() == 1 && !has_vlan && spoof.tags[0].type == kQ;
      if (!bare && !priority_tag) return std::nullopt;
      if (bare) spoof.tags.emplace_back();
      spoof.tags[0].vlan = kAccess;
    }
    if (spoof.from == kTrunkHost) {
      const bool member = has_vlan && spoof.tags[0].type == kQ && kTrunk.contains(spoof.tags[0].vlan);
      if (!member) return std::nullopt;
    }
    return spoof;
  }
  static std::uint16_t vlan_of(const Spoof& inside) {
    return inside.tags.empty() ? std::uint16_t{0} : inside.tags[0].vlan;
  }
  /// Whether the host is in the VLAN of a frame in the unit.
  static bool is_in(std::size_t host, const Spoof& inside) {
    if (host != kAccessHost && host != kTrunkHost) return true;
    if (inside.tags.empty() || inside.tags[0].type != kQ) return false;
    return host == kAccessHost ? inside.tags[0].vlan == kAccess : kTrunk.contains(inside.tags[0].vlan);
  }
  /// Whether the host listens to the group.
  static bool listens(std::size_t host, const MacAddress& group_address) {
    if (group_address == kBroadcastMac) return true;
    return host == kGuarded ? group_address == group(1) : host != kNoGroups;
  }

  /// Where a frame goes that its sender may send.
  [[nodiscard]] Verdict deliver(const Spoof& inside) const {
    const auto addressed = std::ranges::find(macs, inside.destination);
    const auto number = static_cast<std::size_t>(addressed - macs.begin());
    if (addressed != macs.end() && is_in(number, inside)) {
      if (number == inside.from) return {.cause = "from_host_to_itself"};
      return {.receivers = {number}};
    }
    Verdict verdict{.to_lan = inside.from != kLan};
    for (std::size_t host = 0; inside.destination.is_multicast() && host < kHosts; ++host) {
      if (host != inside.from && is_in(host, inside) && listens(host, inside.destination))
        verdict.receivers.insert(host);
    }
    if (!verdict.to_lan && verdict.receivers.empty()) {
      verdict.cause = lan_stations.contains({inside.destination, vlan_of(inside)}) ? "lan_to_lan" : "lan_unwanted";
    }
    return verdict;
  }

  [[nodiscard]] Verdict judge_of_lan(const Spoof& spoof) {
    if (spoof.source.is_multicast() || spoof.source == kZero) return {.cause = "lan_bad_source"};
    if (std::ranges::find(macs, spoof.source) != macs.end()) return {.cause = "lan_forged"};
    lan_stations.insert({spoof.source, vlan_of(spoof)});
    if (spoof.destination == kLinkLocal) return {.cause = "lan_link_local"};
    return deliver(spoof);
  }

  [[nodiscard]] Verdict judge(const Spoof& spoof) {
    if (spoof.from == kLan) return judge_of_lan(spoof);
    if (spoof.source != macs[spoof.from]) {
      if (spoof.source.is_multicast() || spoof.source == kZero) return {.cause = "from_host_bad_source"};
      const bool anothers = std::ranges::find(macs, spoof.source) != macs.end() || spoof.source == kConfigured;
      return {.cause = anothers ? "from_host_forged" : "from_host_not_allowed"};
    }
    if (spoof.destination == kLinkLocal) return {.cause = "from_host_link_local"};
    if (spoof.from == kGuarded && *spoof.claim->cause != '\0') return {.cause = spoof.claim->cause};
    const bool to_group = spoof.destination.is_multicast() && spoof.destination != kBroadcastMac;
    if (spoof.from == kNoGroups && to_group) return {.cause = "from_host_group"};
    const auto travels = inside(spoof);
    if (!travels) return {.cause = "from_host_vlan"};
    return deliver(*travels);
  }

  /// The frame as the LAN or this host sees it.
  [[nodiscard]] static Frame seen(const Spoof& spoof, std::size_t by) {
    Spoof travels = *inside(spoof);
    if (by == kAccessHost) travels.tags.erase(travels.tags.begin());
    return frame_of(travels);
  }

  bool arrives_where_it_may(const Spoof& spoof) {
    const Verdict verdict = judge(spoof);
    if (spoof.from == kLan) {
      bench.lan.arriving.push_back(frame_of(spoof));
    } else {
      SPLITNIC_CHECK(hosts[spoof.from]->send(frame_of(spoof)));
    }
    bench.step();
    bench.step();
    if (!verdict.cause.empty()) {
      ++expected[(spoof.from == kLan ? "" : std::string(kNames[spoof.from]) + "/") + verdict.cause];
    }
    bool right = verdict.to_lan ? bench.lan.sent == std::vector<Frame>{seen(spoof, kLan)} : bench.lan.sent.empty();
    for (std::size_t host = 0; host < kHosts; ++host) {
      const auto& got = hosts[host]->frames;
      right = right && (verdict.receivers.contains(host) ? got == std::vector<Frame>{seen(spoof, host)} : got.empty());
    }
    forget();
    return right;
  }
};

TEST_CASE("of frames with foreign addresses and tags none arrives where it must not, and each is counted",
          "[iounit][policy][spoofing]") {
  Spoofing spoofing;
  const std::size_t count = wanted_count();
  for (std::size_t number = 0; number < count; ++number) {
    const Spoof spoof = spoofing.any_spoof();
    if (!spoofing.arrives_where_it_may(spoof)) {
      std::string tags;
      for (const Tag& tag : spoof.tags) {
        tags += (tag.type == kQ ? " Q" : " AD") + std::to_string(tag.vlan) + "p" + std::to_string(tag.priority);
      }
      FAIL("frame " << number << " of " << (spoof.from == kLan ? "the LAN" : kNames[spoof.from]) << ": from "
                    << to_string(spoof.source) << " to " << to_string(spoof.destination) << ", tags" << tags
                    << ", with " << spoof.claim->what
                    << ": arrived where it must not, or not where it must, or changed");
    }
    if (number % 4096 == 0) spoofing.bench.run(std::chrono::milliseconds(20));  // rests, heartbeats, statistics
  }
  CHECK(spoofing.bench.drops() == spoofing.expected);
  // Every cause at every host that has it: five at each, VLANs at two, three guards, groups; and five of the LAN.
  CHECK(spoofing.expected.size() == 5 * kHosts + 2 + 3 + 1 + 5);
  const auto sum = spoofing.bench.sum();
  CHECK(sum.in == sum.delivered + sum.dropped);
}

TEST_CASE("of requests for foreign addresses none is granted, and each is counted", "[iounit][policy][spoofing]") {
  Spoofing spoofing;
  UnitBench& bench = spoofing.bench;
  const MacAddress held = spoofing.held_address();
  std::uint64_t refused = 0;
  std::uint64_t invalid = 0;
  for (std::size_t number = 0; number < wanted_count() / 100; ++number) {
    const std::size_t from = spoofing.random.below(kHosts);
    MacAddress wanted;
    do {
      wanted = spoofing.random.below(18) == 0 ? held : spoofing.any_address();
    } while (wanted == kUnknown || wanted == spoofing.macs[from] || wanted == station(2));
    INFO("request " << number << " of host " << kNames[from] << " for " << to_string(wanted));
    REQUIRE_FALSE(bench.grants(*spoofing.hosts[from], wire::SetMacAddress{wanted}));
    ++(wanted.is_multicast() || wanted == kZero ? invalid : refused);
    REQUIRE(bench.attached(kNames[from])->mac() == spoofing.macs[from]);
  }
  CHECK(refused > 0);
  CHECK(invalid > 0);
  CHECK(bench.unit().counters().addresses_refused == refused);
  CHECK(spoofing.bad_messages() == invalid);
  CHECK(bench.unit().counters().hosts_refused == 0);
}

/// A host that comes as this user with this name, and asks for this address.
struct Arrival {
  uid_t user = 0;
  std::string name;
  MacAddress mac;
};

TEST_CASE("of hosts with foreign names, users and addresses none comes up, and each is counted",
          "[iounit][policy][spoofing]") {
  Spoofing spoofing;
  UnitBench& bench = spoofing.bench;
  const MacAddress held = spoofing.held_address();
  std::uint64_t names = 0;
  std::uint64_t addresses = 0;
  std::uint64_t invalid = 0;
  const auto refuses = [&](const Arrival& arrival) {
    auto bridge = plain_bridge();
    bridge.processes[0] = fabric::BridgePeer{.pid = 1, .uid = arrival.user, .gid = 100};
    auto options = host_named(arrival.name);
    options.mac = arrival.mac;
    TestHost& thief = bench.connect(options, bridge);
    REQUIRE(bench.run_until([&] { return !thief.downs.empty() || thief.up(); }));
    CHECK_FALSE(thief.up());
    thief.die();
    bench.settle();
    INFO("user " << arrival.user << ", name " << arrival.name << ", address " << to_string(arrival.mac));
    CHECK(bench.unit().counters().names_refused == names);
    CHECK(bench.unit().counters().addresses_refused == addresses);
    CHECK(bench.unit().counters().hosts_refused == names + addresses);
    CHECK(spoofing.bad_messages() == invalid);
  };
  // Names: those that the policy gives to a user, those that others brought, and one whose host has gone.
  for (std::size_t owner = 0; owner <= kHosts; ++owner) {
    const bool is_gone = owner == kHosts;
    const uid_t owner_user = kFirstUser + static_cast<uid_t>(is_gone ? 50 : owner);
    for (const uid_t user : {uid_t{0}, kFirstUser, kFirstUser + 1, kFirstUser + 2, kFirstUser + 50, kFirstUser + 51}) {
      if (user == owner_user) continue;
      ++names;
      refuses({user, is_gone ? "gone" : kNames[owner], {}});
    }
  }
  // Addresses: every kind but those that are free.
  for (const MacAddress& mac : {spoofing.macs[0], spoofing.macs[1], spoofing.macs[2], spoofing.macs[3],
                                spoofing.macs[4], station(1), kGateway, kConfigured, held}) {
    ++addresses;
    refuses({kFirstUser + 60, "thief", mac});
  }
  for (const MacAddress& mac : {kBroadcastMac, kLinkLocal, group(1), kGroupV6, kGroupLocal}) {
    ++invalid;
    refuses({kFirstUser + 60, "thief", mac});
  }
  for (std::size_t host = 0; host < kHosts; ++host) {
    REQUIRE(bench.attached(kNames[host]) != nullptr);
    CHECK(bench.attached(kNames[host])->mac() == spoofing.macs[host]);
    CHECK(spoofing.hosts[host]->downs.empty());
  }
}

}  // namespace
}  // namespace splitnic::iounit::test::io_unit_spoofing_test
