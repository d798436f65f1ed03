#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/mac_address.h"
#include "common/os/unique_fd.h"
#include "common/result.h"

struct nlmsghdr;

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
  MacAddress mac;  ///< zero if the link has no address of six octets
  std::uint32_t mtu = 0;
  std::uint32_t min_mtu = 0;
  std::uint32_t max_mtu = 0;  ///< 0: not reported
  bool up = false;            ///< administratively (IFF_UP)
  bool running = false;
  bool promiscuous = false;    ///< by command, or because somebody (a bridge, a capture) needs it
  bool all_multicast = false;  ///< likewise: a multicast router or a VLAN may need it (reported since Linux 6.1)
  bool carrier = false;
  OperState oper_state = OperState::kUnknown;
  std::optional<int> master;  ///< index of the bridge or bond that it is a member of
  std::string kind;           ///< "tun" (also of a TAP), "veth", "bridge"; empty if no link type created the device
  std::string alias;          ///< a text that administrators and programs set

  /// Of a TUN or TAP.
  struct Tun {
    bool multi_queue = false;
    std::uint32_t queues = 0;  ///< descriptors that are attached to it; reported with multi_queue only
  };
  std::optional<Tun> tun{};  ///< empty: another kind, or a kernel before 4.17
};

struct LinkEvent {
  enum class Kind {
    kChanged,  ///< new, or changed
    kRemoved,  ///< gone from this namespace; `link` has index and name
    kResync,   ///< events were lost: query the links again; `link` is empty
  };
  Kind kind = Kind::kChanged;
  LinkInfo link{};
  /// Set if kRemoved means a move to another namespace: the id of that namespace as seen from here (RTM_GETNSID), and
  /// the index of the link there.
  std::optional<int> moved_to_netnsid{};
  std::optional<int> moved_to_index{};

  /// Whether it may be about the link that had this index and name when it was last asked about. A query waits for the
  /// kernel's configuration lock, which others hold for long while they make and remove interfaces of their own.
  [[nodiscard]] bool concerns(int index, std::string_view name) const {
    return kind == Kind::kResync || link.index == index || link.name == name;
  }
};

/// Whether an interface may have this name: 1 to 15 characters; no blank, no '/', ':', '%' (the kernel would read it as
/// a pattern for a number) and no control character; none of ".", "..", "all" and "default". Error: one line that gives
/// the reason.
[[nodiscard]] Result<void> check_interface_name(std::string_view name);

/// rtnetlink for interfaces, in the network namespace of the thread that opened it. Thread: one at a time. Requests
/// take from a few microseconds to some milliseconds: use it on the control path.
class LinkSocket {
 public:
  static Result<LinkSocket> open();
  /// The sockets that another LinkSocket opened, most often in another process: copies of its descriptors(). Requests
  /// that change a link also need the right in this process.
  static LinkSocket adopt(UniqueFd requests, UniqueFd events) { return {std::move(requests), std::move(events)}; }

  /// Errors: "no interface named eth7".
  [[nodiscard]] Result<LinkInfo> query(std::string_view name);
  [[nodiscard]] Result<LinkInfo> query(int index);

  /// What would be lost with the link, for people: "it is up", "it has an address"; empty: nothing is configured on it.
  /// Its address, MTU and alias don't count.
  [[nodiscard]] Result<std::string> configuration_of(const LinkInfo& link);

  /// Whether somebody has given the link an IPv6 address that is valid beyond it. Below an MTU of 1280 (RFC 8200) the
  /// kernel removes all of them, with their routes, for good.
  [[nodiscard]] Result<bool> has_ipv6_address(const LinkInfo& link);

  /// The unicast addresses that the link receives in addition to its own, sorted: those of interfaces on top of it (a
  /// macvlan, a VLAN with an address of its own), and those that an administrator added (bridge fdb add ... self).
  [[nodiscard]] Result<std::vector<MacAddress>> further_addresses(const LinkInfo& link);

  /// The kernel finds the link by its index; its name appears in messages. Errors: "setting the MTU of lan0 to 99999:
  /// Invalid argument (mtu greater than device maximum)".
  [[nodiscard]] Result<void> set_mtu(const LinkInfo& link, std::uint32_t mtu);
  [[nodiscard]] Result<void> set_mac(const LinkInfo& link, const MacAddress& mac);
  [[nodiscard]] Result<void> set_up(const LinkInfo& link, bool up);
  /// At most 255 bytes. It is readable as LinkInfo::alias in every namespace that the link moves to.
  [[nodiscard]] Result<void> set_alias(const LinkInfo& link, const std::string& alias);
  /// Removes the link from its bridge or bond.
  [[nodiscard]] Result<void> clear_master(const LinkInfo& link);

  /// Reports the events of the namespace's links since the last call, at most a few hundred. Never blocks. Returns how
  /// many.
  std::size_t poll_events(const std::function<void(const LinkEvent&)>& on_event);
  /// The descriptor is readable when poll_events has events.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  /// The sockets of requests and of events, for adopt() in another process; lent.
  [[nodiscard]] std::pair<int, int> descriptors() const { return {requests_.get(), events_.get()}; }

 private:
  struct Request;

  LinkSocket(UniqueFd requests, UniqueFd events) : requests_(std::move(requests)), events_(std::move(events)) {}
  static Result<UniqueFd> open_socket(int flags, unsigned groups);
  /// Sends a request. Calls visit with each message of the answer until it returns true, or the kernel acknowledges or
  /// ends its list. The error is only the reason.
  Result<void> exchange(Request& request, const std::function<bool(const nlmsghdr*)>& visit);
  /// The link that the kernel answers with, if it does.
  Result<std::optional<LinkInfo>> ask_for_link(Request& request);
  Result<void> change(Request& request, std::string_view doing);

  UniqueFd requests_;
  UniqueFd events_;
  std::uint32_t sequence_ = 0;
};

}  // namespace splitnic::os
