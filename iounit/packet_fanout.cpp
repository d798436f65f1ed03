#include "iounit/packet_fanout.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include "common/os/errno_text.h"

namespace splitnic::iounit {
namespace {

/// PACKET_FANOUT_FLAG_IGNORE_OUTGOING, younger than some headers. A group ignores the sockets' own setting.
constexpr unsigned kIgnoreOutgoing = 0x4000;

bool set_group(int socket, unsigned type_and_flags, std::uint16_t number) {
  const unsigned group = number | type_and_flags << 16U;
  return ::setsockopt(socket, SOL_PACKET, PACKET_FANOUT, &group, sizeof group) == 0;
}

/// With the flag if the kernel knows it; PacketLan drops outgoing frames, too.
bool join_group(int socket, unsigned flags, std::uint16_t number) {
  return set_group(socket, PACKET_FANOUT_HASH | kIgnoreOutgoing | flags, number) ||
         set_group(socket, PACKET_FANOUT_HASH | flags, number);
}

}  // namespace

Result<void> PacketFanout::join(int socket, int index) {
  const std::lock_guard lock(mutex_);
  if (group_ && group_->index == index && join_group(socket, 0, group_->number)) return {};
  // A number that no other program uses.
  if (!join_group(socket, PACKET_FANOUT_FLAG_UNIQUEID, 0)) {
    return fail("sharing the frames between sockets: {}", os::errno_text());
  }
  unsigned group = 0;
  socklen_t bytes = sizeof group;
  if (::getsockopt(socket, SOL_PACKET, PACKET_FANOUT, &group, &bytes) != 0) {
    return fail("sharing the frames between sockets: {}", os::errno_text());
  }
  group_ = Group{.index = index, .number = static_cast<std::uint16_t>(group & 0xffffU)};
  return {};
}

}  // namespace splitnic::iounit
