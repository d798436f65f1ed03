#include "bench/nic/echo.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "common/os/errno_text.h"
#include "common/os/netns.h"

namespace splitnic::bench::nic {

namespace {

constexpr std::size_t kDataBytes = 56;
constexpr std::uint16_t kIdentifier = 0x534e;  // alone in its namespace: any will do

struct EchoMessage {
  icmphdr head{};
  std::array<std::byte, kDataBytes> data{};
};
static_assert(sizeof(EchoMessage) == sizeof(icmphdr) + kDataBytes);

/// RFC 1071 of a message whose data is zero.
std::uint16_t checksum_of(const icmphdr& head) {
  std::array<std::uint16_t, sizeof(icmphdr) / 2> words{};
  std::memcpy(words.data(), &head, sizeof head);
  std::uint32_t sum = 0;
  for (const auto word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16U);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

Result<Echo> Echo::open(int netns, const char* address) {
  const auto inside = os::ScopedNetns::enter(netns);
  if (!inside) return tl::unexpected(inside.error());
  os::UniqueFd socket(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMP));
  if (!socket) return fail("a socket for ICMP: {}", os::errno_text());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &to.sin_addr);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    return fail("no way to {}: {}", address, os::errno_text());
  }
  return Echo(std::move(socket));
}

std::optional<Duration> Echo::once(Duration patience) {
  EchoMessage message;
  message.head.type = ICMP_ECHO;
  message.head.un.echo.id = htons(kIdentifier);
  message.head.un.echo.sequence = htons(++sequence_);
  message.head.checksum = checksum_of(message.head);
  const Time sent = monotonic_now();
  if (::send(socket_.get(), &message, sizeof message, 0) < 0) return std::nullopt;
  for (;;) {
    const Duration left = sent + patience - monotonic_now();
    if (left.count() <= 0) return std::nullopt;
    const timespec wait{0, left.count()};
    pollfd readable{socket_.get(), POLLIN, 0};
    ::ppoll(&readable, 1, &wait, nullptr);
    if (receive_own_reply()) return monotonic_now() - sent;
  }
}

bool Echo::receive_own_reply() {
  std::array<std::byte, 256> packet{};
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), packet.data(), packet.size(), 0);
    if (got < static_cast<ssize_t>(sizeof(iphdr) + sizeof(icmphdr))) return false;
    const std::size_t head_bytes = (std::to_integer<std::size_t>(packet[0]) & 0xfU) * 4;
    if (head_bytes + sizeof(icmphdr) > static_cast<std::size_t>(got)) continue;
    icmphdr head{};
    std::memcpy(&head, packet.data() + head_bytes, sizeof head);
    if (head.type == ICMP_ECHOREPLY && head.un.echo.id == htons(kIdentifier) &&
        head.un.echo.sequence == htons(sequence_)) {
      return true;
    }
  }
}

}  // namespace splitnic::bench::nic
