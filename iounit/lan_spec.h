#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/os/log.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/lan_engine.h"
#include "iounit/packet_fanout.h"

namespace splitnic::iounit {

/// How to reach a LAN interface: a packet socket with virtio-net headers, libpcap, or the first of them that works.
enum class InterfaceEngine : std::uint8_t { automatic, packet, pcap };

struct InterfaceSpec {
  std::string name;  ///< 1 to 15 characters
  InterfaceEngine engine = InterfaceEngine::automatic;
  friend bool operator==(const InterfaceSpec&, const InterfaceSpec&) = default;
};

/// Savefiles as a LAN: frames come from `input` and go to `output`. Either may be empty, but not both.
struct SavefileSpec {
  std::string input{};
  std::string output{};
  bool pace_max = false;       ///< true: plays frames as fast as the driver takes them; false: at the recorded pace
  std::size_t wait_hosts = 1;  ///< sessions that must be up before playback starts
  std::uint32_t mtu = 1500;    ///< the MTU that this LAN reports, in layer-3 bytes
  friend bool operator==(const SavefileSpec&, const SavefileSpec&) = default;
};

using LanSpec = std::variant<InterfaceSpec, SavefileSpec>;

/// Parses "eth0", or "file:in.pcap,out.pcap[,pace=max|recorded][,wait-hosts=N][,mtu=N]" where one of the paths may be
/// empty. Paths can't contain a comma. The error says what is wrong with the text.
[[nodiscard]] Result<LanSpec> parse_lan_spec(std::string_view text);

/// Opens the engine for a spec, and logs which one it took for an interface. wall_at_zero: the wall-clock time at
/// Time{}, for the timestamps in written savefiles. log: must outlive the engine. Errors: one sentence, which the
/// program can print when it exits at start-up.
[[nodiscard]] Result<std::unique_ptr<LanEngine>> open_lan(const LanSpec& spec, Time now, Duration wall_at_zero,
                                                          os::Log& log);

/// Opens as many engines that share the interface's frames by flow, for units that are a group. They use packet
/// sockets. fanout: what the sockets share, also when an engine opens one again. Errors: as for open_lan().
[[nodiscard]] Result<std::vector<std::unique_ptr<LanEngine>>> open_shared_lan(
    const InterfaceSpec& spec, std::size_t engines, const std::shared_ptr<PacketFanout>& fanout, Time now,
    os::Log& log);

}  // namespace splitnic::iounit
