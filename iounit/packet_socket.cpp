#include "iounit/packet_socket.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "common/os/errno_text.h"

namespace splitnic::iounit {
namespace {

constexpr int kSocketSendBytes = 4 << 20;

template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

/// An interface's name may have changed between the look-up of its index and now.
bool has_index(const std::string& interface, int index) {
  std::array<char, IF_NAMESIZE> name{};
  return index > 0 && ::if_indextoname(static_cast<unsigned>(index), name.data()) != nullptr &&
         interface == name.data();
}

tl::unexpected<Error> replaced(const std::string& interface) {
  return fail("the LAN interface {} was replaced", interface);
}

tl::unexpected<Error> refused(const std::string& interface, const char* what) {
  return fail("can't use a packet socket on the LAN interface {}: {}: {}", interface, what, os::errno_text(errno));
}

/// The address that the socket is bound to; nullopt: no packet socket.
std::optional<sockaddr_ll> bound_address(int socket) {
  sockaddr_ll address{};
  socklen_t bytes = sizeof address;
  const bool known = ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  if (!known || address.sll_family != AF_PACKET) return std::nullopt;
  return address;
}

packet_mreq membership_of(int index, int type) {
  packet_mreq membership{};
  membership.mr_ifindex = index;
  membership.mr_type = static_cast<unsigned short>(type);
  return membership;
}

/// Lets the socket get no frame at all, or ends that.
bool keep_frames_out(int socket, bool on) {
  sock_filter nothing{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program{.len = 1, .filter = &nothing};
  return on ? set_option(socket, SOL_SOCKET, SO_ATTACH_FILTER, program)
            : set_option(socket, SOL_SOCKET, SO_DETACH_FILTER, 0);
}

std::vector<std::string> lines_of(std::span<const std::byte> text) {
  std::vector<std::string> lines;
  std::string line;
  for (const std::byte letter : text) {
    if (letter != static_cast<std::byte>('\n')) {
      line += static_cast<char>(letter);
    } else {
      lines.push_back(std::exchange(line, {}));
    }
  }
  return lines;
}

}  // namespace

void enlarge_send_buffer(int socket) {
  if (set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, kSocketSendBytes)) return;
  set_option(socket, SOL_SOCKET, SO_SNDBUF, kSocketSendBytes);
}

Result<std::vector<std::string>> move_packet_socket(int socket, const std::string& interface, int index) {
  const auto before = bound_address(socket);
  if (!before) return fail("only a packet socket can be moved to a LAN interface");
  if (!has_index(interface, index)) return replaced(interface);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return refused(interface, "bind");
  }
  const auto now = bound_address(socket);
  if (!now) return refused(interface, "getsockname");
  if (now->sll_hatype != ARPHRD_ETHER && now->sll_hatype != ARPHRD_LOOPBACK) {
    return fail("the LAN interface {} is not Ethernet but of hardware type {}", interface, now->sll_hatype);
  }
  std::vector<std::string> notes;
  // All-multicast as well: a device may refuse promiscuous mode.
  for (const int type : {PACKET_MR_PROMISC, PACKET_MR_ALLMULTI}) {
    // The kernel counts memberships, so the old one must go. There may be none, or no such interface any more.
    set_option(socket, SOL_PACKET, PACKET_DROP_MEMBERSHIP, membership_of(before->sll_ifindex, type));
    if (!set_option(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership_of(index, type))) {
      notes.push_back(fmt::format("LAN interface {}: no {} mode: {}", interface,
                                  type == PACKET_MR_PROMISC ? "promiscuous" : "all-multicast", os::errno_text(errno)));
    }
  }
  return notes;
}

Result<PacketSocket> open_packet_socket(const std::string& interface, int index, int receive_bytes,
                                        PacketFanout* fanout) {
  const auto refusal = [&](const char* what) { return refused(interface, what); };
  if (!has_index(interface, index)) return replaced(interface);
  PacketSocket made{os::UniqueFd(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
  const int fd = made.descriptor.get();
  if (fd < 0 && (errno == EPERM || errno == EACCES)) {
    return fail("no permission to capture on the LAN interface {}: run as root or with CAP_NET_RAW", interface);
  }
  if (fd < 0) return refusal("socket");
  const int on = 1;
  if (!set_option(fd, SOL_PACKET, PACKET_VNET_HDR, on)) return refusal("virtio-net headers");
  if (!set_option(fd, SOL_PACKET, PACKET_AUXDATA, on)) return refusal("VLAN tags");
  // Kernels before 4.20 lack this; PacketLan::receive drops such frames, too.
  set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, on);
  if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, receive_bytes)) {
    set_option(fd, SOL_SOCKET, SO_RCVBUF, receive_bytes);
  }
  enlarge_send_buffer(fd);
  // A socket joins a group when it is bound. Until then it would get what the others get as well.
  if (fanout != nullptr && !keep_frames_out(fd, true)) return refusal("a filter");
  auto notes = move_packet_socket(fd, interface, index);
  if (!notes) return tl::unexpected(notes.error());
  made.notes = *std::move(notes);
  if (fanout == nullptr) return made;
  if (const auto joined = fanout->join(fd, index); !joined) {
    return fail("can't use a packet socket on the LAN interface {}: {}", interface, joined.error().message);
  }
  if (!keep_frames_out(fd, false)) return refusal("a filter");
  return made;
}

Result<os::PrivilegedMessage> serve_packet_socket(const std::string& interface, int receive_bytes,
                                                  const os::PrivilegedMessage& request, PacketFanout* fanout) {
  std::int32_t index = 0;
  const bool moves = request.descriptors.size() == 1;
  if (request.bytes.size() != sizeof index || request.descriptors.size() > 1) {
    return fail("a request for a packet socket is an interface's index, and the socket to be moved, if any");
  }
  std::memcpy(&index, request.bytes.data(), sizeof index);
  os::PrivilegedMessage answer;
  std::vector<std::string> notes;
  if (moves) {
    auto moved = move_packet_socket(request.descriptors.front().get(), interface, index);
    if (!moved) return tl::unexpected(moved.error());
    notes = *std::move(moved);
  } else {
    auto made = open_packet_socket(interface, index, receive_bytes, fanout);
    if (!made) return tl::unexpected(made.error());
    notes = std::move(made->notes);
    answer.descriptors.push_back(std::move(made->descriptor));
  }
  for (const std::string& note : notes) {
    for (const char letter : note) answer.bytes.push_back(static_cast<std::byte>(letter));
    answer.bytes.push_back(static_cast<std::byte>('\n'));
  }
  return answer;
}

PacketSockets packet_sockets_of(std::shared_ptr<os::PrivilegedProcess> process) {
  const auto ask = [process = std::move(process)](int index, std::span<const int> sockets) {
    const std::int32_t number = index;
    auto answer = process->request(std::as_bytes(std::span(&number, 1)), sockets);
    // Without a socket the request is for one.
    if (answer && answer->descriptors.size() + sockets.size() != 1) {
      answer = fail("the privileged process answers something else");
    }
    return answer;
  };
  return {.open = [ask](int index) -> Result<PacketSocket> {
            return ask(index, {}).map([](os::PrivilegedMessage answer) {
              return PacketSocket{std::move(answer.descriptors.front()), lines_of(answer.bytes)};
            });
          },
          .move = [ask](int socket, int index) -> Result<std::vector<std::string>> {
            return ask(index, std::span(&socket, 1)).map([](const os::PrivilegedMessage& answer) {
              return lines_of(answer.bytes);
            });
          }};
}

}  // namespace splitnic::iounit
