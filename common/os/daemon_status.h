#pragma once

#include <boost/describe/class.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace splitnic::os {

/// A counter with the name that people see.
struct NamedCount {
  std::string name;
  std::uint64_t count = 0;
  friend bool operator==(const NamedCount&, const NamedCount&) = default;
};
BOOST_DESCRIBE_STRUCT(NamedCount, (), (name, count))

/// The other end of one session, seen from here: tx is what went to it.
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

/// What a daemon reports of itself. The descriptions below the structs drive the encoding for the control socket, the
/// JSON and the clearing of counters; the control socket's schema is control.capnp.
struct DaemonStatus {
  std::string role;  ///< "host" or "iounit"
  std::string name;
  std::string state;
  std::uint64_t epoch = 0;
  std::string mac;  ///< empty where there is none
  std::uint32_t mtu = 0;
  bool carrier = false;
  std::string lan;   ///< what the I/O unit serves: an interface or savefiles
  std::string tap;   ///< what the host serves: the name of its virtual NIC
  std::string mode;  ///< "r" or "s"
  std::vector<PeerStatus> peers;
  std::vector<NamedCount> drops;
  std::vector<NamedCount> counts;  ///< what is worth counting and no drop
  std::uint32_t pid = 0;
  std::string version;  ///< of the program
  std::uint64_t uptime_ms = 0;
  friend bool operator==(const DaemonStatus&, const DaemonStatus&) = default;
};
BOOST_DESCRIBE_STRUCT(DaemonStatus, (),
                      (role, name, state, epoch, mac, mtu, carrier, lan, tap, mode, peers, drops, counts, pid, version,
                       uptime_ms))

/// What can be asked of a daemon. Both are answered with its status.
enum class ControlRequest : std::uint8_t {
  status,
  clear,  ///< with the counters as they were; then they start from zero
};

/// The counters that a daemon reports, from the last clear on. The counters themselves go on.
class ClearedCounts {
 public:
  /// status: with all counts since the daemon began. Answers the same less what there was at the last clear. A peer
  /// goes by its name; where one of its counts is less than then, it has begun anew and is told as it is.
  [[nodiscard]] DaemonStatus answer(DaemonStatus status, ControlRequest request);

 private:
  DaemonStatus before_;
};

/// The value of "schema_version". It grows when a key goes or changes its meaning; new keys leave it as it is.
inline constexpr int kStatusSchemaVersion = 1;

/// One line of JSON (docs/schemas/status.schema.json): schema_version, then the keys of the struct; the epoch as a
/// string of 16 hexadecimal digits, counters as objects {name: count}. Names that are not valid UTF-8 or hold controls
/// are made printable.
std::string to_json(const DaemonStatus& status);

}  // namespace splitnic::os
