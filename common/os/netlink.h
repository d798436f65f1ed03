#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/mac_address.h"
#include "common/result.h"

struct mnl_socket;

namespace splitnic::os {

/// An interface's operational state (RFC 2863), numbered as in rtnetlink.
enum class OperState : std::uint8_t {
  kUnknown = 0,
  kNotPresent = 1,
  kDown = 2,
  kLowerLayerDown = 3,
  kTesting = 4,
  kDormant = 5,
  kUp = 6
};

/// One interface as the kernel describes it.
struct LinkInfo {
  int index = 0;
  std::string name;
  MacAddress mac;  ///< zero where the link has none of six octets
  std::uint32_t mtu = 0;
  std::uint32_t min_mtu = 0;
  std::uint32_t max_mtu = 0;  ///< 0: not told
  bool up = false;            ///< administratively (IFF_UP)
  bool running = false;
  bool promiscuous = false;  ///< by command, or because somebody (a bridge, a capture) needs it
  bool all_multicast = false;
  bool carrier = false;
  OperState oper_state = OperState::kUnknown;
  std::optional<int> master;  ///< index of the bridge or bond that it is a port of
  std::string kind;           ///< "tun" (a TAP too), "veth", "bridge"; empty for devices that no link type made
  std::string alias;          ///< what administrators and programs wrote on it
};

struct LinkEvent {
  enum class Kind {
    kChanged,  ///< new, or changed
    kRemoved,  ///< gone from this namespace; `link` has index and name
    kResync,   ///< events were lost: query again what matters; `link` is empty
  };
  Kind kind = Kind::kChanged;
  LinkInfo link{};
  /// kRemoved by a move to another namespace: that one's id as seen from here (RTM_GETNSID), and the index there.
  std::optional<int> moved_to_netnsid{};
  std::optional<int> moved_to_index{};
};

/// Whether an interface may have this name: 1 to 15 characters, no blank, no '/', ':', '%' (the kernel would take it
/// for a pattern to number) or control character, neither "." nor "..". Error: one line that says why not.
[[nodiscard]] Result<void> check_interface_name(std::string_view name);

/// rtnetlink for interfaces, of the network namespace that the thread was in when it was opened. Thread: one at a time.
/// Requests take a few microseconds to some milliseconds: for the control path.
class LinkSocket {
 public:
  static Result<LinkSocket> open();

  /// Errors: "no interface named eth7".
  [[nodiscard]] Result<LinkInfo> query(std::string_view name);
  [[nodiscard]] Result<LinkInfo> query(int index);

  /// The link is found by its index, its name serves messages. Errors: "setting the MTU of lan0 to 99999: Invalid
  /// argument (mtu greater than device maximum)".
  [[nodiscard]] Result<void> set_mtu(const LinkInfo& link, std::uint32_t mtu);
  [[nodiscard]] Result<void> set_mac(const LinkInfo& link, const MacAddress& mac);
  [[nodiscard]] Result<void> set_up(const LinkInfo& link, bool up);
  /// At most 255 bytes; readable as LinkInfo::alias from any namespace that the link is moved to.
  [[nodiscard]] Result<void> set_alias(const LinkInfo& link, const std::string& alias);
  /// Takes the link out of its bridge or bond.
  [[nodiscard]] Result<void> clear_master(const LinkInfo& link);

  /// Hands on what happened to the namespace's links since the last call, at most a few hundred events; never blocks.
  /// Returns how many.
  std::size_t poll_events(const std::function<void(const LinkEvent&)>& on_event);
  /// Readable when poll_events has something.
  [[nodiscard]] int descriptor() const;

 private:
  struct Close {
    void operator()(mnl_socket* socket) const;
  };
  using Socket = std::unique_ptr<mnl_socket, Close>;
  struct Request;

  LinkSocket(Socket requests, Socket events) : requests_(std::move(requests)), events_(std::move(events)) {}
  static Result<Socket> open_socket(int flags, unsigned groups);
  Result<std::optional<LinkInfo>> exchange(Request& request);
  Result<void> change(Request& request, std::string_view doing);

  Socket requests_;
  Socket events_;
  std::uint32_t sequence_ = 0;
};

}  // namespace splitnic::os
