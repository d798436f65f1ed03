#pragma once

#include <boost/describe/class.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace splitnic::os {

/// A counter with its displayed name.
struct NamedCount {
  std::string name;
  std::uint64_t count = 0;
  friend bool operator==(const NamedCount&, const NamedCount&) = default;
};
BOOST_DESCRIBE_STRUCT(NamedCount, (), (name, count))

/// The other end of one session, as seen from here. tx counts the frames sent to it.
struct PeerStatus {
  std::string name;
  std::string state;
  std::string mac;
  std::uint64_t tx_frames = 0;
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_bytes = 0;
  std::vector<NamedCount> drops;     ///< by cause
  std::vector<NamedCount> messages;  ///< by type
  friend bool operator==(const PeerStatus&, const PeerStatus&) = default;
};
BOOST_DESCRIBE_STRUCT(PeerStatus, (), (name, state, mac, tx_frames, rx_frames, tx_bytes, rx_bytes, drops, messages))

/// What a daemon reports about itself. The descriptions below the structs drive the encoding for the control socket,
/// the JSON and the clearing of counters. The control socket's schema is control.capnp.
struct DaemonStatus {
  std::string role;  ///< "host" or "iounit"
  std::string name;
  std::string state;
  std::uint64_t epoch = 0;
  std::string mac;  ///< empty if there is none
  std::uint32_t mtu = 0;
  bool carrier = false;
  std::string lan;         ///< the LAN of the I/O unit: an interface or savefiles
  std::string lan_engine;  ///< how the unit reaches it: "packet", "pcap", "savefile"
  std::string tap;         ///< the name of the host's virtual NIC
  std::string mode;        ///< "r" or "s"
  std::vector<PeerStatus> peers;
  std::vector<NamedCount> drops;
  std::vector<NamedCount> counts;  ///< counters of events other than drops
  std::uint32_t pid = 0;
  std::string version;  ///< the program's version
  std::uint64_t uptime_ms = 0;
  std::uint32_t threads = 1;  ///< of an I/O unit: those that move frames
  friend bool operator==(const DaemonStatus&, const DaemonStatus&) = default;
};
BOOST_DESCRIBE_STRUCT(DaemonStatus, (),
                      (role, name, state, epoch, mac, mtu, carrier, lan, lan_engine, tap, mode, peers, drops, counts,
                       pid, version, uptime_ms, threads))

/// Requests to a daemon. It answers the first two with its status, the others with a text.
enum class ControlRequest : std::uint8_t {
  status,
  clear,          ///< the answer holds the counters before the clear; then they start from zero
  show_policy,    ///< an I/O unit's policy
  reload_policy,  ///< an I/O unit reads its policy file again
};

/// The answer of a daemon: its status, or a text for people.
using ControlAnswer = std::variant<DaemonStatus, std::string>;

/// The counters that a daemon reports since the last clear. The underlying counters continue to count.
class ClearedCounts {
 public:
  /// status: with all counts since the daemon's start. Returns the status minus the counts at the last clear. Peers are
  /// matched by name. If one of a peer's counts is now less than at the clear, the peer has restarted, and its counts
  /// are returned unchanged. What a peer that is gone had counted before the clear is subtracted from the
  /// "departed_..." counts, to which the daemon has added it.
  [[nodiscard]] DaemonStatus answer(DaemonStatus status, ControlRequest request);

 private:
  DaemonStatus before_;
};

/// The value of "schema_version". It increases when a key is removed or changes its meaning. New keys do not change it.
inline constexpr int kStatusSchemaVersion = 1;

/// One line of JSON (docs/schemas/status.schema.json): schema_version, then the keys of the struct. The epoch is a
/// string of 16 hexadecimal digits, and counters are objects {name: count}. Control characters and invalid UTF-8 in
/// names are made printable.
std::string to_json(const DaemonStatus& status);

}  // namespace splitnic::os
