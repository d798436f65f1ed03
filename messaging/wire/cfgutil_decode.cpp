#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>
#include <kj/exception.h>

#include <algorithm>
#include <boost/locale/utf.hpp>
#include <cstring>

#include "common/check.h"
#include "messaging/wire/cfgutil.capnp.h"
#include "messaging/wire/cfgutil.h"
#include "messaging/wire/entries.h"

namespace splitnic::messaging::wire {
namespace {

/// A field that is out of its range. Only this file throws and catches it, like kj's own exceptions.
struct Invalid {
  std::string what;
};

template <class... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Invalid{fmt::format(format, std::forward<Args>(args)...)};
}

template <class Number>
Number in_range(const char* field, Number value, Number lowest, Number highest) {
  if (value < lowest || value > highest) invalid("{} {} is not in {}..{}", field, value, lowest, highest);
  return value;
}

std::string_view view_of(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

std::string name_in(const char* field, capnp::Text::Reader text) {
  if (!is_valid_name(view_of(text))) invalid("{} is no name", field);
  return std::string(view_of(text));
}

std::string text_in(const char* field, capnp::Text::Reader text) {
  if (!is_valid_text(view_of(text))) invalid("{} is no text", field);
  return std::string(view_of(text));
}

MacAddress mac_in(const char* field, std::uint64_t number) {
  if (number >> 48U != 0) invalid("{} {:#x} is no MAC address", field, number);
  MacAddress mac;
  for (auto octet = mac.octets.rbegin(); octet != mac.octets.rend(); ++octet) {
    *octet = static_cast<std::uint8_t>(number & 0xffU);
    number >>= 8U;
  }
  return mac;
}

MacAddress station_in(const char* field, std::uint64_t number) {
  const MacAddress mac = mac_in(field, number);
  if (mac.is_zero() || mac.is_multicast()) invalid("{} {} is no station's address", field, to_string(mac));
  return mac;
}

MacAddress group_in(const char* field, std::uint64_t number) {
  const MacAddress mac = mac_in(field, number);
  if (!mac.is_multicast()) invalid("{} {} is no group's address", field, to_string(mac));
  return mac;
}

template <class List>
unsigned size_in(const char* field, const List& list, std::size_t limit) {
  if (list.size() > limit) invalid("{} has {} entries, over the limit of {}", field, list.size(), limit);
  return list.size();
}

Role role_in(schema::Role role) {
  if (role != schema::Role::HOST && role != schema::Role::IO_UNIT) {
    invalid("role {} is unknown", static_cast<unsigned>(role));
  }
  return static_cast<Role>(role);
}

Mode mode_in(schema::Mode mode) {
  if (mode != schema::Mode::RDMA && mode != schema::Mode::SEND) {
    invalid("mode {} is unknown", static_cast<unsigned>(mode));
  }
  return static_cast<Mode>(mode);
}

ChannelTerms terms_in(schema::ChannelTerms::Reader in) {
  ChannelTerms terms;
  terms.max_message_bytes = in_range("max message bytes", in.getMaxMessageBytes(), kMinMessageBytes, kMaxMessageBytes);
  terms.max_list_entries = in_range("max list entries", in.getMaxListEntries(), 1U, kMaxListEntries);
  terms.max_frame_bytes = in_range("max frame bytes", in.getMaxFrameBytes(), kMinMtu + kMinFrameBytes, kMaxFrameBytes);
  terms.cell_bytes = in_range("cell bytes", in.getCellBytes(), kMinCellBytes, kMaxCellBytes);
  terms.receive_depth = in_range("receive depth", in.getReceiveDepth(), 1U, kMaxReceiveDepth);
  const bool present = in.getDataChannel();
  const std::uint32_t lowest = present ? 1 : 0;
  ChannelTerms::DataChannel data;
  data.queue_pair = in_range("data queue pair", in.getDataQueuePair(), lowest, present ? kMaxQueuePair : 0);
  data.receive_depth = in_range("data receive depth", in.getDataReceiveDepth(), lowest, present ? kMaxReceiveDepth : 0);
  data.initial_psn = in_range("initial PSN", in.getInitialPsn(), 0U, present ? 0xffff'ffffU : 0U);
  if (present) terms.data_channel = data;
  return terms;
}

HelloRequest read(schema::HelloRequest::Reader in) {
  HelloRequest hello;
  hello.lowest_version = in_range<std::uint16_t>("lowest version", in.getLowestVersion(), 1, 0xffff);
  hello.highest_version =
      in_range<std::uint16_t>("highest version", in.getHighestVersion(), hello.lowest_version, 0xffff);
  hello.role = role_in(in.getRole());
  hello.mode = mode_in(in.getMode());
  hello.features = in.getFeatures();
  hello.name = name_in("name", in.getName());
  if (const auto mac = in.getRequestedMac(); mac != 0) hello.requested_mac = station_in("requested MAC", mac);
  hello.terms = terms_in(in.getTerms());
  return hello;
}

HelloReply read(schema::HelloReply::Reader in) {
  HelloReply hello;
  hello.version = in_range<std::uint16_t>("version", in.getVersion(), 1, 0xffff);
  hello.role = role_in(in.getRole());
  hello.mode = mode_in(in.getMode());
  hello.features = in.getFeatures();
  hello.name = name_in("name", in.getName());
  hello.assigned_mac = station_in("assigned MAC", in.getAssignedMac());
  hello.max_mtu = in_range("max MTU", in.getMaxMtu(), kMinMtu, kMaxMtu);
  hello.link_up = in.getLinkUp();
  hello.link_speed_mbps = in.getLinkSpeedMbps();
  hello.terms = terms_in(in.getTerms());
  return hello;
}

LinkState read(schema::LinkState::Reader in) {
  LinkState link{.up = in.getUp(), .speed_mbps = in.getSpeedMbps(), .max_mtu = in.getMaxMtu()};
  if (link.max_mtu != 0) in_range("max MTU", link.max_mtu, kMinMtu, kMaxMtu);
  return link;
}

ReceiveFilter read(schema::ReceiveFilter::Reader in) {
  ReceiveFilter filter{.all_multicast = in.getAllMulticast(), .promiscuous = in.getPromiscuous()};
  const auto unicast = in.getUnicast();
  filter.unicast.reserve(size_in("unicast list", unicast, kMaxUnicastFilters));
  for (const auto mac : unicast) filter.unicast.push_back(station_in("unicast address", mac));
  const auto multicast = in.getMulticast();
  filter.multicast.reserve(size_in("multicast list", multicast, kMaxMulticastFilters));
  for (const auto mac : multicast) filter.multicast.push_back(group_in("multicast address", mac));
  return filter;
}

VlanFilter read(schema::VlanFilter::Reader in) {
  switch (in.which()) {
    case schema::VlanFilter::ALL:
      return {};
    case schema::VlanFilter::ONLY:
      break;
    default:
      invalid("VLAN filter of an unknown kind");
  }
  const auto list = in.getOnly();
  std::vector<std::uint16_t> vids;
  vids.reserve(size_in("VLAN list", list, kMaxVlan));
  std::uint16_t lowest = 1;
  for (const auto vid : list) {
    vids.push_back(in_range("VLAN (ascending)", vid, lowest, kMaxVlan));
    lowest = static_cast<std::uint16_t>(vid + 1);
  }
  return {.only = std::move(vids)};
}

Moderation read(schema::Moderation::Reader in) {
  constexpr auto kMaxTime = static_cast<std::uint64_t>(kMaxModerationTime.count());
  const auto nanoseconds = in_range<std::uint64_t>("moderation time", in.getNanoseconds(), 0, kMaxTime);
  return {
      .entries = in.getEntries(), .bytes = in.getBytes(), .time = Duration(static_cast<Duration::rep>(nanoseconds))};
}

Heartbeat read(schema::HeartbeatRequest::Reader in) {
  constexpr auto kMost = static_cast<std::uint32_t>(kMaxHeartbeatInterval.count());
  const auto next = in_range<std::uint32_t>("heartbeat interval", in.getNextMs(), 0, kMost);
  return {.sequence = in.getSequence(), .next = std::chrono::milliseconds(next)};
}

Flow read(schema::Flow::Reader in) {
  return {.frames = in.getFrames(), .bytes = in.getBytes(), .errors = in.getErrors(), .drops = in.getDrops()};
}

Statistics read(schema::Statistics::Reader in) {
  constexpr auto kMaxTime = static_cast<std::uint64_t>(Duration::max().count());
  Statistics statistics;
  statistics.counted_for =
      Duration(static_cast<Duration::rep>(in_range<std::uint64_t>("time counted", in.getCountedForNs(), 0, kMaxTime)));
  statistics.from_peer = read(in.getFromPeer());
  statistics.to_peer = read(in.getToPeer());
  statistics.from_interface = read(in.getFromInterface());
  statistics.to_interface = read(in.getToInterface());
  const auto list = in.getCounters();
  statistics.counters.reserve(size_in("counter list", list, kMaxCounters));
  for (const auto counter : list) {
    statistics.counters.push_back({name_in("counter name", counter.getName()), counter.getValue()});
  }
  return statistics;
}

StatusReport read(schema::StatusReport::Reader in) { return {in.getCode(), text_in("status text", in.getText())}; }
Reset read(schema::Reset::Reader in) { return {in.getCode(), text_in("reset text", in.getText())}; }

std::uint32_t mtu_in(schema::Mtu::Reader in) { return in_range("MTU", in.getBytes(), kMinMtu, kMaxMtu); }

RequestBody read_request(CfgRequest request, capnp::MessageReader& in) {
  switch (request) {
    case CfgRequest::hello:
      return read(in.getRoot<schema::HelloRequest>());
    case CfgRequest::set_mac_address:
      return SetMacAddress{station_in("MAC address", in.getRoot<schema::MacAddress>().getAddress())};
    case CfgRequest::set_mtu:
      return SetMtu{mtu_in(in.getRoot<schema::Mtu>())};
    case CfgRequest::link_state:
      return read(in.getRoot<schema::LinkState>());
    case CfgRequest::set_receive_filter:
      return read(in.getRoot<schema::ReceiveFilter>());
    case CfgRequest::set_vlan_filter:
      return read(in.getRoot<schema::VlanFilter>());
    case CfgRequest::set_moderation:
      return read(in.getRoot<schema::Moderation>());
    case CfgRequest::statistics_report:
      in.getRoot<schema::Empty>();
      return StatisticsReport{};
    case CfgRequest::statistics_clear:
      in.getRoot<schema::Empty>();
      return StatisticsClear{};
    case CfgRequest::status_report:
      return read(in.getRoot<schema::StatusReport>());
    case CfgRequest::heartbeat:
      return read(in.getRoot<schema::HeartbeatRequest>());
    case CfgRequest::reset:
      return read(in.getRoot<schema::Reset>());
  }
  check_failed(__FILE__, __LINE__, "the request is one of CfgRequest");
}

ReplyBody read_reply(CfgRequest request, capnp::MessageReader& in) {
  switch (request) {
    case CfgRequest::hello:
      return read(in.getRoot<schema::HelloReply>());
    case CfgRequest::set_mac_address:
      return MacAddressReply{station_in("MAC address", in.getRoot<schema::MacAddress>().getAddress())};
    case CfgRequest::set_mtu:
      return MtuReply{mtu_in(in.getRoot<schema::Mtu>())};
    case CfgRequest::statistics_report:
    case CfgRequest::statistics_clear:
      return read(in.getRoot<schema::Statistics>());
    case CfgRequest::heartbeat:
      return HeartbeatReply{in.getRoot<schema::HeartbeatReply>().getEcho()};
    case CfgRequest::link_state:
    case CfgRequest::set_receive_filter:
    case CfgRequest::set_vlan_filter:
    case CfgRequest::set_moderation:
    case CfgRequest::status_report:
    case CfgRequest::reset:
      in.getRoot<schema::Empty>();
      return Acknowledged{};
  }
  check_failed(__FILE__, __LINE__, "the request is one of CfgRequest");
}

/// Passes `data`, aligned and bounded, to `read_body`. Cap'n Proto throws for an invalid message; this function catches
/// it.
template <class Body, class Read>
tl::expected<Body, CfgFault> decode_any(std::span<const std::byte> data, Read&& read_body) {
  constexpr std::size_t kWordBytes = sizeof(capnp::word);
  if (data.empty() || data.size() % kWordBytes != 0 || data.size() > kMaxMessageBytes) {
    return tl::unexpected<CfgFault>(CfgFault{CfgStatus::malformed, fmt::format("{} bytes of data", data.size())});
  }
  auto words = kj::heapArray<capnp::word>(data.size() / kWordBytes);
  std::memcpy(words.asBytes().begin(), data.data(), data.size());
  capnp::ReaderOptions options;
  // The decoders read every object once or twice; this limit stops a message that points to the same words many times.
  options.traversalLimitInWords = 4 * words.size() + 64;
  options.nestingLimit = 8;
  try {
    capnp::FlatArrayMessageReader reader(words, options);
    if (reader.getEnd() != words.end()) {
      return tl::unexpected<CfgFault>(CfgFault{CfgStatus::malformed, "bytes after the message"});
    }
    return read_body(reader);
  } catch (const kj::Exception& exception) {
    return tl::unexpected<CfgFault>(CfgFault{CfgStatus::malformed, exception.getDescription().cStr()});
  } catch (const Invalid& fault) {
    return tl::unexpected<CfgFault>(CfgFault{CfgStatus::invalid_parameter, fault.what});
  }
}

bool is_text(std::string_view text, std::size_t limit, char32_t forbidden) {
  using Utf8 = boost::locale::utf::utf_traits<char>;
  if (text.size() > limit) return false;
  for (auto at = text.begin(); at != text.end();) {
    const auto point = static_cast<char32_t>(Utf8::decode(at, text.end()));
    const bool control = point < U' ' || (point >= U'\x7f' && point < U'\xa0');
    // Illegal and incomplete sequences decode to numbers beyond the last code point.
    if (control || point > U'\x10ffff' || point == forbidden) return false;
  }
  return true;
}

}  // namespace

tl::expected<RequestBody, CfgFault> decode_request(std::uint32_t code, std::span<const std::byte> data) {
  const auto request = static_cast<CfgRequest>(code);
  if (code == 0 || code > kLastCfgRequest) {
    return tl::unexpected<CfgFault>(CfgFault{CfgStatus::unknown_request, fmt::format("request {}", code)});
  }
  return decode_any<RequestBody>(data, [&](auto& reader) { return read_request(request, reader); });
}

tl::expected<ReplyBody, CfgFault> decode_reply(CfgRequest request, std::span<const std::byte> data) {
  return decode_any<ReplyBody>(data, [&](auto& reader) { return read_reply(request, reader); });
}

std::string decode_refusal(std::span<const std::byte> data) {
  const auto text = decode_any<std::string>(
      data, [](auto& reader) { return text_in("refusal", reader.template getRoot<schema::Refusal>().getText()); });
  return text.value_or(std::string());
}

std::optional<std::uint16_t> common_version(const HelloRequest& hello) {
  const auto highest = std::min(hello.highest_version, kHighestVersion);
  if (highest < hello.lowest_version || highest < kLowestVersion) return std::nullopt;
  return highest;
}

bool is_valid_name(std::string_view name) { return !name.empty() && is_text(name, kMaxNameBytes, U'/'); }
bool is_valid_text(std::string_view text) { return is_text(text, kMaxTextBytes, U'\0'); }

}  // namespace splitnic::messaging::wire
