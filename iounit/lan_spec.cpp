#include "iounit/lan_spec.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "common/os/netlink.h"
#include "iounit/packet_lan.h"
#include "iounit/pcap_lan.h"
#include "iounit/savefile_lan.h"

namespace splitnic::iounit {
namespace {

constexpr std::string_view kFilePrefix = "file:";

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',')) {
    parts.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  parts.push_back(text);
  return parts;
}

template <class Number>
bool parse_number(std::string_view text, Number least, Number most, Number& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc{} && end == text.data() + text.size() && to >= least && to <= most;
}

Result<LanSpec> parse_interface(std::string_view text) {
  if (text.empty()) return fail("the LAN is empty: give an interface name or file:IN,OUT");
  if (auto usable = os::check_interface_name(text); !usable) return tl::unexpected(usable.error());
  return InterfaceSpec{std::string(text)};
}

Result<LanSpec> parse_savefiles(std::string_view text) {
  const std::vector<std::string_view> parts = split(text.substr(kFilePrefix.size()));
  if (parts.size() < 2) return fail("the LAN '{}' needs two paths, file:IN,OUT (one may be empty)", text);
  SavefileSpec spec;
  spec.input = parts[0];
  spec.output = parts[1];
  if (spec.input.empty() && spec.output.empty()) return fail("the LAN '{}' names neither an input nor an output", text);
  for (std::size_t at = 2; at < parts.size(); ++at) {
    const std::string_view part = parts[at];
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (key == "pace") {
      if (value != "max" && value != "recorded") return fail("pace={} of the LAN is neither max nor recorded", value);
      spec.pace_max = value == "max";
    } else if (key == "wait-hosts") {
      if (!parse_number<std::size_t>(value, 0, 65535, spec.wait_hosts)) {
        return fail("wait-hosts={} of the LAN isn't a number from 0 to 65535", value);
      }
    } else if (key == "mtu") {
      if (!parse_number<std::uint32_t>(value, 68, 65521, spec.mtu)) {
        return fail("mtu={} of the LAN isn't a number from 68 to 65521", value);
      }
    } else {
      return fail("unknown option '{}' in the LAN '{}': pace, wait-hosts and mtu are known", part, text);
    }
  }
  return spec;
}

using OpenedLan = Result<std::unique_ptr<LanEngine>>;

OpenedLan open_interface(const InterfaceSpec& spec, Time now, os::Log& log) {
  const auto as_engine = [](auto lan) -> std::unique_ptr<LanEngine> { return lan; };
  const auto by_pcap = [&] { return PcapLan::open({.interface = spec.name}, now, log).map(as_engine); };
  if (spec.engine == InterfaceEngine::pcap) return by_pcap();
  OpenedLan lan = PacketLan::open({.interface = spec.name}, now, log).map(as_engine);
  if (lan || spec.engine == InterfaceEngine::packet) return lan;
  OpenedLan instead = by_pcap();
  if (instead) log.warning("{}; using libpcap", lan.error().message);
  return instead;
}

}  // namespace

Result<LanSpec> parse_lan_spec(std::string_view text) {
  return text.starts_with(kFilePrefix) ? parse_savefiles(text) : parse_interface(text);
}

Result<std::unique_ptr<LanEngine>> open_lan(const LanSpec& spec, Time now, Duration wall_at_zero, os::Log& log) {
  if (const auto* files = std::get_if<SavefileSpec>(&spec)) {
    return SavefileLan::open(*files, now, wall_at_zero, log).map([](auto lan) -> std::unique_ptr<LanEngine> {
      return lan;
    });
  }
  auto lan = open_interface(std::get<InterfaceSpec>(spec), now, log);
  if (lan) {
    log.info("LAN interface {}: {}", (*lan)->name(),
             (*lan)->engine() == "packet" ? "packet socket with virtio-net headers"
                                          : "libpcap, which can't tell how super-frames of UDP are to be cut");
  }
  return lan;
}

Result<std::vector<std::unique_ptr<LanEngine>>> open_shared_lan(const InterfaceSpec& spec, std::size_t engines,
                                                                const std::shared_ptr<PacketFanout>& fanout, Time now,
                                                                os::Log& log) {
  std::vector<std::unique_ptr<LanEngine>> opened;
  for (std::size_t engine = 0; engine < engines; ++engine) {
    auto lan = PacketLan::open({.interface = spec.name, .fanout = fanout}, now, log);
    if (!lan) return tl::unexpected(lan.error());
    opened.push_back(*std::move(lan));
  }
  log.info("LAN interface {}: {} packet sockets with virtio-net headers", spec.name, engines);
  return opened;
}

}  // namespace splitnic::iounit
