#include "common/os/netlink.h"

#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "common/os/errno_text.h"
#include "common/os/message_io.h"

namespace splitnic::os {
namespace {

constexpr std::size_t kReceiveBytes = 32768;  // the kernel's largest link description, with room to spare
constexpr std::size_t kMaxReceivesPerPoll = 64;
constexpr int kEventBufferBytes = 1 << 20;
constexpr std::size_t kMaxNameBytes = IFNAMSIZ - 1;

// The attribute's number, if it has the right size. We trust today's kernel; a later one may use another size.
template <class Number>
void assign(const nlattr* attribute, Number& into) {
  if (mnl_attr_get_payload_len(attribute) == sizeof(Number)) {
    std::memcpy(&into, mnl_attr_get_payload(attribute), sizeof(Number));
  }
}

template <class Number>
void assign(const nlattr* attribute, std::optional<Number>& into) {
  Number number{};
  assign(attribute, number);
  into = number;
}

/// libmnl's mnl_attr_for_each is for C: it assigns void* and narrows.
template <class Visit>
void for_each_attribute(const void* first, const void* end, Visit&& visit) {
  for (const auto* attribute = static_cast<const nlattr*>(first); mnl_attr_ok(
           attribute, static_cast<int>(static_cast<const char*>(end) - reinterpret_cast<const char*>(attribute)));
       attribute = mnl_attr_next(attribute)) {
    visit(attribute);
  }
}

template <class Visit>
void for_each_attribute(const nlmsghdr* header, std::size_t offset, Visit&& visit) {
  for_each_attribute(mnl_nlmsg_get_payload_offset(header, offset), mnl_nlmsg_get_payload_tail(header),
                     std::forward<Visit>(visit));
}

template <class Visit>
void for_each_inside(const nlattr* nest, Visit&& visit) {
  const auto* payload = static_cast<const char*>(mnl_attr_get_payload(nest));
  for_each_attribute(payload, payload + mnl_attr_get_payload_len(nest), std::forward<Visit>(visit));
}

void take_tun(const nlattr* info_data, LinkInfo::Tun& tun) {
  for_each_inside(info_data, [&](const nlattr* attribute) {
    std::uint8_t flag = 0;
    std::uint32_t count = 0;
    switch (mnl_attr_get_type(attribute)) {
      case IFLA_TUN_MULTI_QUEUE:
        assign(attribute, flag);
        tun.multi_queue = flag != 0;
        break;
      case IFLA_TUN_NUM_QUEUES:
      case IFLA_TUN_NUM_DISABLED_QUEUES:
        assign(attribute, count);
        tun.queues += count;
        break;
      default:
        break;
    }
  });
}

/// The kernel reports the kind before the data of that kind.
void take_link_info(const nlattr* link_info, LinkInfo& link) {
  for_each_inside(link_info, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND && mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) == 0) {
      link.kind = mnl_attr_get_str(attribute);
    } else if (mnl_attr_get_type(attribute) == IFLA_INFO_DATA && link.kind == "tun") {
      link.tun = LinkInfo::Tun{};
      take_tun(attribute, *link.tun);
    }
  });
}

void take_attribute(const nlattr* attribute, LinkEvent& event) {
  LinkInfo& link = event.link;
  switch (mnl_attr_get_type(attribute)) {
    case IFLA_IFNAME:
      if (mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) == 0) link.name = mnl_attr_get_str(attribute);
      break;
    case IFLA_ADDRESS:
      assign(attribute, link.mac.octets);
      break;
    case IFLA_MTU:
      assign(attribute, link.mtu);
      break;
    case IFLA_MIN_MTU:
      assign(attribute, link.min_mtu);
      break;
    case IFLA_MAX_MTU:
      assign(attribute, link.max_mtu);
      break;
    case IFLA_OPERSTATE: {
      std::uint8_t state = 0;
      assign(attribute, state);
      link.oper_state = state <= static_cast<std::uint8_t>(OperState::kUp) ? OperState{state} : OperState::kUnknown;
      break;
    }
    case IFLA_CARRIER: {
      std::uint8_t carrier = 0;
      assign(attribute, carrier);
      link.carrier = carrier != 0;
      break;
    }
    case IFLA_PROMISCUITY: {
      std::uint32_t users = 0;
      assign(attribute, users);
      link.promiscuous = link.promiscuous || users != 0;
      break;
    }
    case IFLA_ALLMULTI: {
      std::uint32_t users = 0;
      assign(attribute, users);
      link.all_multicast = link.all_multicast || users != 0;
      break;
    }
    case IFLA_MASTER:
      assign(attribute, link.master);
      break;
    case IFLA_LINKINFO:
      take_link_info(attribute, link);
      break;
    case IFLA_IFALIAS:
      if (mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) == 0) link.alias = mnl_attr_get_str(attribute);
      break;
    case IFLA_NEW_NETNSID:
      assign(attribute, event.moved_to_netnsid);
      break;
    case IFLA_NEW_IFINDEX:
      assign(attribute, event.moved_to_index);
      break;
    default:
      break;
  }
}

ssize_t send_to_kernel(int socket, std::span<const std::byte> request) {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  iovec piece{const_cast<std::byte*>(request.data()), request.size()};
  msghdr message{};
  message.msg_name = &kernel;
  message.msg_namelen = sizeof kernel;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return send_message(socket, message, 0);
}

/// The next datagram. -1 and ENOSPC: it is longer than the buffer.
ssize_t receive(int socket, std::span<std::byte> buffer) {
  iovec piece{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  const ssize_t got = receive_message(socket, message, 0);
  if (got < 0 || (message.msg_flags & MSG_TRUNC) == 0) return got;
  errno = ENOSPC;
  return -1;
}

std::optional<LinkEvent> parse_link(const nlmsghdr* header) {
  if (header->nlmsg_type != RTM_NEWLINK && header->nlmsg_type != RTM_DELLINK) return std::nullopt;
  if (mnl_nlmsg_get_payload_len(header) < sizeof(ifinfomsg)) return std::nullopt;
  const auto* info = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(header));
  // Bridges report their members in the same group: such a "removed" only means that the member left its bridge.
  if (info->ifi_family != AF_UNSPEC) return std::nullopt;
  LinkEvent event;
  event.kind = header->nlmsg_type == RTM_NEWLINK ? LinkEvent::Kind::kChanged : LinkEvent::Kind::kRemoved;
  event.link.index = info->ifi_index;
  event.link.up = (info->ifi_flags & IFF_UP) != 0;
  event.link.running = (info->ifi_flags & IFF_RUNNING) != 0;
  event.link.promiscuous = (info->ifi_flags & IFF_PROMISC) != 0;
  event.link.all_multicast = (info->ifi_flags & IFF_ALLMULTI) != 0;
  for_each_attribute(header, sizeof(ifinfomsg), [&](const nlattr* attribute) { take_attribute(attribute, event); });
  return event;
}

// The kernel's own text about a refusal (NLMSGERR_ATTR_MSG), in parentheses; empty if there is none.
std::string explanation(const nlmsghdr* header) {
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) == 0) return {};
  const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(header));
  std::size_t offset = sizeof(nlmsgerr);
  if ((header->nlmsg_flags & NLM_F_CAPPED) == 0) offset += error->msg.nlmsg_len - sizeof(nlmsghdr);
  std::string text;
  for_each_attribute(header, offset, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == NLMSGERR_ATTR_MSG && mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) == 0) {
      text = fmt::format(" ({})", mnl_attr_get_str(attribute));
    }
  });
  return text;
}

}  // namespace

/// A message under construction.
struct LinkSocket::Request {
  alignas(nlmsghdr) char bytes[512]{};
  nlmsghdr* header = mnl_nlmsg_put_header(bytes);
  ifinfomsg* info = nullptr;

  Request(std::uint16_t type, std::uint16_t flags, int index) {
    header->nlmsg_type = type;
    header->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    info = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ifinfomsg)));
    info->ifi_family = AF_UNSPEC;
    info->ifi_index = index;
  }
};

Result<void> check_interface_name(std::string_view name) {
  if (name.empty()) return fail("an interface name can't be empty");
  if (name.size() > kMaxNameBytes)
    return fail("the interface name '{}' is longer than {} characters", name, kMaxNameBytes);
  const auto unusable = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '/' || c == ':' || c == '%';
  };
  if (name == "." || name == ".." || std::any_of(name.begin(), name.end(), unusable)) {
    return fail("'{}' can't be an interface name: none has blanks, '/', ':' or '%'", name);
  }
  // Folders of /proc/sys/net/ipv4/conf: a kernel with IPv4 makes no such interface.
  if (name == "all" || name == "default") {
    return fail("'{}' can't be an interface name: the kernel uses it for settings of all interfaces", name);
  }
  return {};
}

Result<UniqueFd> LinkSocket::open_socket(int flags, unsigned groups) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_ROUTE));
  if (!socket) return fail("opening an rtnetlink socket: {}", errno_text());
  const int on = 1;
  // Neither option is essential: longer error texts, and room for a burst of events.
  ::setsockopt(socket.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  if (groups != 0) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kEventBufferBytes, sizeof kEventBufferBytes);
  }
  sockaddr_nl address{};  // the kernel chooses the port number
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail("binding an rtnetlink socket: {}", errno_text());
  }
  return socket;
}

Result<LinkSocket> LinkSocket::open() {
  auto requests = open_socket(0, 0);
  if (!requests) return tl::unexpected(requests.error());
  auto events = open_socket(SOCK_NONBLOCK, RTMGRP_LINK);
  if (!events) return tl::unexpected(events.error());
  return LinkSocket(std::move(*requests), std::move(*events));
}

Result<void> LinkSocket::exchange(Request& request, const std::function<bool(const nlmsghdr*)>& visit) {
  request.header->nlmsg_seq = ++sequence_;
  if (send_to_kernel(requests_.get(), std::as_bytes(std::span(request.bytes, request.header->nlmsg_len))) < 0) {
    return fail("{}", errno_text());
  }
  alignas(nlmsghdr) char buffer[kReceiveBytes];
  for (;;) {
    const ssize_t got = receive(requests_.get(), std::as_writable_bytes(std::span(buffer)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail("{}", errno_text());
    int left = static_cast<int>(got);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer); mnl_nlmsg_ok(header, left);
         header = mnl_nlmsg_next(header, &left)) {
      if (header->nlmsg_seq != sequence_) continue;
      if (header->nlmsg_type == NLMSG_DONE) return {};
      if (header->nlmsg_type == NLMSG_ERROR && mnl_nlmsg_get_payload_len(header) >= sizeof(nlmsgerr)) {
        const int error = -static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(header))->error;
        if (error == 0) return {};
        return fail("{}{}", errno_text(error), explanation(header));
      }
      if (visit(header)) return {};
    }
  }
}

Result<std::optional<LinkInfo>> LinkSocket::ask_for_link(Request& request) {
  std::optional<LinkInfo> link;
  const auto take = [&](const nlmsghdr* header) {
    if (auto event = parse_link(header)) link = std::move(event->link);
    return link.has_value();
  };
  if (auto done = exchange(request, take); !done) return tl::unexpected(done.error());
  return link;
}

Result<LinkInfo> LinkSocket::query(std::string_view name) {
  if (auto usable = check_interface_name(name); !usable) return tl::unexpected(usable.error());
  Request request(RTM_GETLINK, 0, 0);
  mnl_attr_put_strz(request.header, IFLA_IFNAME, std::string(name).c_str());
  auto link = ask_for_link(request);
  if (link && *link) return std::move(**link);
  if (!link && link.error().message.starts_with(errno_text(ENODEV))) return fail("no interface named {}", name);
  return fail("looking up the interface {}: {}", name, link ? "no answer" : link.error().message);
}

Result<LinkInfo> LinkSocket::query(int index) {
  if (index <= 0) return fail("no interface has the index {}", index);
  Request request(RTM_GETLINK, 0, index);
  auto link = ask_for_link(request);
  if (link && *link) return std::move(**link);
  if (!link && link.error().message.starts_with(errno_text(ENODEV)))
    return fail("no interface has the index {}", index);
  return fail("looking up the interface with the index {}: {}", index, link ? "no answer" : link.error().message);
}

Result<std::string> LinkSocket::configuration_of(const LinkInfo& link) {
  if (link.up) return std::string("it is up");
  if (link.master) return std::string("it is in a bridge or bond");
  bool has_address = false;
  Request addresses(RTM_GETADDR, NLM_F_DUMP, 0);
  const auto of_link = [&](const nlmsghdr* header) {
    if (header->nlmsg_type != RTM_NEWADDR || mnl_nlmsg_get_payload_len(header) < sizeof(ifaddrmsg)) return false;
    const auto* address = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(header));
    has_address = has_address || address->ifa_index == static_cast<unsigned>(link.index);
    return false;  // the kernel begins no other list before this one is read
  };
  if (auto listed = exchange(addresses, of_link); !listed) return tl::unexpected(listed.error());
  if (has_address) return std::string("it has an address");
  bool carries = false;
  Request links(RTM_GETLINK, NLM_F_DUMP, 0);
  const auto on_link = [&](const nlmsghdr* header) {
    if (header->nlmsg_type != RTM_NEWLINK || mnl_nlmsg_get_payload_len(header) < sizeof(ifinfomsg)) return false;
    for_each_attribute(header, sizeof(ifinfomsg), [&](const nlattr* attribute) {
      int below = 0;
      if (mnl_attr_get_type(attribute) == IFLA_LINK) assign(attribute, below);
      carries = carries || below == link.index;
    });
    return false;
  };
  if (auto listed = exchange(links, on_link); !listed) return tl::unexpected(listed.error());
  return std::string(carries ? "another interface is on top of it" : "");
}

Result<bool> LinkSocket::has_ipv6_address(const LinkInfo& link) {
  bool has = false;
  Request addresses(RTM_GETADDR, NLM_F_DUMP, 0);
  addresses.info->ifi_family = AF_INET6;
  const auto take = [&](const nlmsghdr* header) {
    if (header->nlmsg_type != RTM_NEWADDR || mnl_nlmsg_get_payload_len(header) < sizeof(ifaddrmsg)) return false;
    const auto* address = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(header));
    has = has || (address->ifa_index == static_cast<unsigned>(link.index) && address->ifa_scope < RT_SCOPE_LINK &&
                  address->ifa_family == AF_INET6);
    return false;
  };
  if (auto listed = exchange(addresses, take); !listed) {
    return fail("listing the addresses of {}: {}", link.name, listed.error().message);
  }
  return has;
}

Result<std::vector<MacAddress>> LinkSocket::further_addresses(const LinkInfo& link) {
  std::vector<MacAddress> found;
  Request request(RTM_GETNEIGH, NLM_F_DUMP, link.index);
  request.info->ifi_family = AF_BRIDGE;
  const auto take = [&](const nlmsghdr* header) {
    if (header->nlmsg_type != RTM_NEWNEIGH || mnl_nlmsg_get_payload_len(header) < sizeof(ndmsg)) return false;
    const auto* entry = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(header));
    // Without NTF_SELF, it is an address that a bridge has learned behind the link.
    if (entry->ndm_ifindex != link.index || (entry->ndm_flags & NTF_SELF) == 0) return false;
    for_each_attribute(header, sizeof(ndmsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) != NDA_LLADDR) return;
      MacAddress mac;
      assign(attribute, mac.octets);
      // The list has the groups, too.
      if (!mac.is_zero() && !mac.is_multicast() && mac != link.mac) found.push_back(mac);
    });
    return false;
  };
  if (auto listed = exchange(request, take); !listed) {
    return fail("listing the addresses of {}: {}", link.name, listed.error().message);
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

Result<void> LinkSocket::change(Request& request, std::string_view doing) {
  const auto done = exchange(request, [](const nlmsghdr*) { return false; });
  if (done) return {};
  return fail("{}: {}", doing, done.error().message);
}

Result<void> LinkSocket::set_mtu(const LinkInfo& link, std::uint32_t mtu) {
  Request request(RTM_NEWLINK, NLM_F_ACK, link.index);
  mnl_attr_put_u32(request.header, IFLA_MTU, mtu);
  return change(request, fmt::format("setting the MTU of {} to {}", link.name, mtu));
}

Result<void> LinkSocket::set_mac(const LinkInfo& link, const MacAddress& mac) {
  Request request(RTM_NEWLINK, NLM_F_ACK, link.index);
  mnl_attr_put(request.header, IFLA_ADDRESS, mac.octets.size(), mac.octets.data());
  return change(request, fmt::format("setting the address of {} to {}", link.name, to_string(mac)));
}

Result<void> LinkSocket::set_up(const LinkInfo& link, bool up) {
  Request request(RTM_NEWLINK, NLM_F_ACK, link.index);
  request.info->ifi_flags = up ? IFF_UP : 0;
  request.info->ifi_change = IFF_UP;
  return change(request, fmt::format("setting {} {}", link.name, up ? "up" : "down"));
}

Result<void> LinkSocket::set_alias(const LinkInfo& link, const std::string& alias) {
  Request request(RTM_NEWLINK, NLM_F_ACK, link.index);
  if (!mnl_attr_put_check(request.header, sizeof request.bytes, IFLA_IFALIAS, alias.size(), alias.data())) {
    return fail("setting the alias of {}: {}", link.name, errno_text(EMSGSIZE));
  }
  return change(request, fmt::format("setting the alias of {}", link.name));
}

Result<void> LinkSocket::clear_master(const LinkInfo& link) {
  Request request(RTM_NEWLINK, NLM_F_ACK, link.index);
  mnl_attr_put_u32(request.header, IFLA_MASTER, 0);
  return change(request, fmt::format("taking {} out of its bridge", link.name));
}

std::size_t LinkSocket::poll_events(const std::function<void(const LinkEvent&)>& on_event) {
  std::size_t events = 0;
  alignas(nlmsghdr) char buffer[kReceiveBytes];
  for (std::size_t round = 0; round < kMaxReceivesPerPoll; ++round) {
    const ssize_t got = receive(events_.get(), std::as_writable_bytes(std::span(buffer)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {  // ENOBUFS: our queue overran; or one message was too long (ENOSPC)
      on_event(LinkEvent{.kind = LinkEvent::Kind::kResync});
      ++events;
      continue;
    }
    int left = static_cast<int>(got);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer); mnl_nlmsg_ok(header, left);
         header = mnl_nlmsg_next(header, &left)) {
      if (const auto event = parse_link(header)) {
        on_event(*event);
        ++events;
      }
    }
  }
  return events;
}

}  // namespace splitnic::os
