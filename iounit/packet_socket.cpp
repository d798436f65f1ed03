#include "iounit/packet_socket.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
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

}  // namespace

Result<PacketSocket> open_packet_socket(const std::string& interface, int index, int receive_bytes) {
  const auto refusal = [&](const char* what) {
    return fail("can't use a packet socket on the LAN interface {}: {}: {}", interface, what, os::errno_text(errno));
  };
  if (!has_index(interface, index)) return fail("the LAN interface {} was replaced", interface);
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
  if (!set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, kSocketSendBytes)) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketSendBytes);
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return refusal("bind");
  socklen_t address_bytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_bytes) != 0) return refusal("getsockname");
  if (address.sll_hatype != ARPHRD_ETHER && address.sll_hatype != ARPHRD_LOOPBACK) {
    return fail("the LAN interface {} is not Ethernet but of hardware type {}", interface, address.sll_hatype);
  }
  // All-multicast as well: a device may refuse promiscuous mode.
  for (const std::uint16_t type : {std::uint16_t{PACKET_MR_PROMISC}, std::uint16_t{PACKET_MR_ALLMULTI}}) {
    packet_mreq membership{};
    membership.mr_ifindex = index;
    membership.mr_type = type;
    if (!set_option(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)) {
      made.notes.push_back(fmt::format("LAN interface {}: no {} mode: {}", interface,
                                       type == PACKET_MR_PROMISC ? "promiscuous" : "all-multicast",
                                       os::errno_text(errno)));
    }
  }
  return made;
}

Result<os::PrivilegedMessage> serve_packet_socket(const std::string& interface, int receive_bytes,
                                                  const os::PrivilegedMessage& request) {
  std::int32_t index = 0;
  if (request.bytes.size() != sizeof index || !request.descriptors.empty()) {
    return fail("a request for a packet socket is an interface's index");
  }
  std::memcpy(&index, request.bytes.data(), sizeof index);
  auto made = open_packet_socket(interface, index, receive_bytes);
  if (!made) return tl::unexpected(made.error());
  os::PrivilegedMessage answer;
  answer.descriptors.push_back(std::move(made->descriptor));
  for (const std::string& note : made->notes) {
    for (const char letter : note) answer.bytes.push_back(static_cast<std::byte>(letter));
    answer.bytes.push_back(static_cast<std::byte>('\n'));
  }
  return answer;
}

Result<PacketSocket> request_packet_socket(os::PrivilegedProcess& process, int index) {
  const std::int32_t number = index;
  auto answer = process.request(std::as_bytes(std::span(&number, 1)), {});
  if (!answer) return tl::unexpected(answer.error());
  if (answer->descriptors.size() != 1) return fail("the privileged process answers something else");
  PacketSocket made{std::move(answer->descriptors.front())};
  std::string note;
  for (const std::byte letter : answer->bytes) {
    if (letter != static_cast<std::byte>('\n')) {
      note += static_cast<char>(letter);
    } else {
      made.notes.push_back(std::exchange(note, {}));
    }
  }
  return made;
}

}  // namespace splitnic::iounit
