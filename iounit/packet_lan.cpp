#include "iounit/packet_lan.h"

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/frame/ethernet.h"
#include "common/frame/frame_offload.h"
#include "common/frame/software_offload.h"

namespace splitnic::iounit {
namespace {

using frame::FrameOffload;
using frame::VirtioNetHeader;

// Small batches, whose buffers stay in the cache: a super-frame has 64 KiB.
constexpr std::size_t kReceiveBatch = 16;
// After so many bytes, receive() lets the driver wake the receivers, whatever its budget.
constexpr std::size_t kReceiveBytes = 512 << 10;
constexpr std::size_t kAddressBytes = 2 * sizeof(MacAddress);
// A kernel that knows super-frames of UDP takes so many segments (UDP_MAX_SEGMENTS, twice as many in younger ones).
// More of them come from no stack, and their refusal says nothing about other frames.
constexpr std::uint64_t kUdpSegmentsOfAnyKernel = 64;
// Room for a tag that the kernel has taken out, then the frame.
constexpr std::size_t kSlotBytes = (frame::kVlanTagBytes + frame::kMaxFrameBytes + 63) / 64 * 64;

struct Tag {
  std::uint16_t tpid;
  std::uint16_t control;
};

/// The tag that the kernel has taken out of a frame.
std::optional<Tag> stripped_tag(msghdr& message) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_PACKET || at->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata auxiliary;
    if (at->cmsg_len < CMSG_LEN(sizeof auxiliary)) continue;
    std::memcpy(&auxiliary, CMSG_DATA(at), sizeof auxiliary);
    if ((auxiliary.tp_status & TP_STATUS_VLAN_VALID) == 0) return std::nullopt;
    const bool has_tpid = (auxiliary.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    return Tag{has_tpid ? auxiliary.tp_vlan_tpid : frame::kEtherTypeVlan, auxiliary.tp_vlan_tci};
  }
  return std::nullopt;
}

void put16(std::span<std::byte> bytes, std::size_t at, std::uint16_t number) {
  bytes[at] = static_cast<std::byte>(number >> 8U);
  bytes[at + 1] = static_cast<std::byte>(number & 0xffU);
}

/// Puts the tag back. memory: room for the tag, then the frame. Returns the frame with its tag.
std::span<const std::byte> restore_tag(std::span<std::byte> memory, Tag tag) {
  std::memmove(memory.data(), memory.data() + frame::kVlanTagBytes, kAddressBytes);
  put16(memory, kAddressBytes, tag.tpid);
  put16(memory, kAddressBytes + 2, tag.control);
  return memory;
}

/// Bytes of the next message, also of those that did not fit; negative: errno. By recvmmsg, because the daemon may make
/// no other system call that receives.
ssize_t receive_one(int socket, msghdr& into, int flags) {
  mmsghdr message{.msg_hdr = into, .msg_len = 0};
  const int got = ::recvmmsg(socket, &message, 1, flags | MSG_TRUNC | MSG_DONTWAIT, nullptr);
  into = message.msg_hdr;  // the length of the control data
  return got == 1 ? static_cast<ssize_t>(message.msg_len) : -1;
}

/// As a socket expects it.
std::span<const std::byte> bytes_of(const VirtioNetHeader& header) { return std::as_bytes(std::span(&header, 1)); }

}  // namespace

/// The buffers of a batch of received frames.
struct PacketLan::Receiver {
  struct Slot {
    VirtioNetHeader header;
    sockaddr_ll from;
    std::array<iovec, 2> parts;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))> control;
  };

  Receiver() : memory(kReceiveBatch * kSlotBytes) {
    for (std::size_t slot = 0; slot < kReceiveBatch; ++slot) {
      const auto frame = bytes(slot).subspan(frame::kVlanTagBytes);
      slots[slot].parts = {iovec{&slots[slot].header, sizeof(VirtioNetHeader)}, iovec{frame.data(), frame.size()}};
    }
  }
  std::span<std::byte> bytes(std::size_t slot) { return std::span(memory).subspan(slot * kSlotBytes, kSlotBytes); }
  /// A message that fills `parts` and what belongs to the slot.
  msghdr message_into(std::size_t slot, std::span<iovec> parts) {
    return {.msg_name = &slots[slot].from,
            .msg_namelen = sizeof slots[slot].from,
            .msg_iov = parts.data(),
            .msg_iovlen = parts.size(),
            .msg_control = slots[slot].control.data(),
            .msg_controllen = slots[slot].control.size(),
            .msg_flags = 0};
  }
  /// The kernel overwrites the lengths, so each batch sets them again.
  void prepare(std::size_t count) {
    for (std::size_t slot = 0; slot < count; ++slot) {
      messages[slot] = {.msg_hdr = message_into(slot, slots[slot].parts), .msg_len = 0};
    }
  }

  std::vector<std::byte> memory;
  std::array<Slot, kReceiveBatch> slots{};
  std::array<mmsghdr, kReceiveBatch> messages{};
};

PacketLan::PacketLan(const PacketOptions& options, os::Log& log)
    : InterfaceLan(options.interface, log),
      opener_([options](int index) {
        return open_packet_socket(options.interface, index, options.receive_bytes, options.fanout.get());
      }),
      receiver_(std::make_unique<Receiver>()) {}

PacketLan::~PacketLan() = default;

Result<std::unique_ptr<PacketLan>> PacketLan::open(const PacketOptions& options, Time now, os::Log& log) {
  std::unique_ptr<PacketLan> lan(new PacketLan(options, log));
  if (auto error = lan->open_in_this_namespace(now)) return tl::unexpected(*std::move(error));
  return lan;
}

std::optional<Error> PacketLan::open_capture() {
  auto made = opener_(link().index);
  if (!made) return made.error();
  for (const std::string& note : made->notes) log().warning("{}", note);
  socket_ = std::move(made->descriptor);
  return std::nullopt;
}

InterfaceLan::Look PacketLan::look(LanSink& sink, std::size_t budget) {
  Look found;
  std::size_t bytes = 0;
  for (std::size_t taken = 0; is_open() && taken < budget;) {
    if (expects_long_frames_) {
      const Placed placed = receive_placed(sink, bytes);
      if (placed == Placed::nothing_waits) {
        found.emptied = true;
        break;
      }
      if (placed == Placed::yes) {
        ++found.delivered;
        ++taken;
        if (bytes > kReceiveBytes) break;
        continue;
      }
    }
    const std::size_t wanted = std::min(budget - taken, kReceiveBatch);
    receiver_->prepare(wanted);
    const int got =
        ::recvmmsg(socket_.get(), receiver_->messages.data(), static_cast<unsigned>(wanted), MSG_DONTWAIT, nullptr);
    if (got < 0 && errno == EINVAL) {
      note_undescribed();
      ++taken;
      continue;
    }
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) check_at_once();
      found.emptied = errno == EAGAIN;
      break;
    }
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(got); ++slot) {
      bytes += receiver_->messages[slot].msg_len;
      expects_long_frames_ = receiver_->messages[slot].msg_len > kLongFrameBytes;
      deliver(slot, sink, found.delivered);
    }
    taken += static_cast<std::size_t>(got);
    found.emptied = static_cast<std::size_t>(got) < wanted;
    if (found.emptied || bytes > kReceiveBytes) break;
  }
  return found;
}

/// Looks at the next frame's head first: it says whose memory the rest may be read to. That costs a system call, and
/// saves a copy. Only this thread reads from the socket, so the frame that follows is the one that it has seen.
PacketLan::Placed PacketLan::receive_placed(LanSink& sink, std::size_t& bytes) {
  Receiver::Slot& about = receiver_->slots.front();
  const auto memory = receiver_->bytes(0).subspan(frame::kVlanTagBytes);
  std::array<iovec, 4> parts{iovec{&about.header, sizeof about.header}, iovec{memory.data(), kHeadBytes}};
  auto message = receiver_->message_into(0, std::span(parts).first(2));
  ssize_t seen = receive_one(socket_.get(), message, MSG_PEEK);
  if (seen < 0 && errno == EINVAL) {
    // Of a frame that the kernel has dropped behind the last batch, or of the next frame, which is still there then.
    message = receiver_->message_into(0, std::span(parts).first(2));
    seen = receive_one(socket_.get(), message, MSG_PEEK);
    if (seen >= 0 || errno != EINVAL) note_undescribed();
  }
  if (seen < 0 && errno == EAGAIN) return Placed::nothing_waits;
  expects_long_frames_ = seen > static_cast<ssize_t>(kLongFrameBytes + sizeof about.header);
  const std::size_t frame_bytes = static_cast<std::size_t>(std::max<ssize_t>(seen, 0)) - sizeof about.header;
  if (!expects_long_frames_ || frame_bytes > memory.size()) return Placed::no;
  const auto offload = frame::parse_virtio_net_header(about.header);
  if (!offload || about.from.sll_pkttype == PACKET_OUTGOING || stripped_tag(message)) return Placed::no;
  const auto frame = memory.first(frame_bytes);
  const auto place = sink.place_for(frame, kHeadBytes, *offload);
  if (place.empty()) return Placed::no;
  const messaging::FrameMemory payload = place.behind(kHeadBytes);
  parts[2] = {payload.bytes.data(), payload.bytes.size()};
  parts[3] = {payload.rest.data(), payload.rest.size()};
  message = receiver_->message_into(0, parts);
  if (receive_one(socket_.get(), message, 0) != seen) {
    ++counters_.rx_truncated;
    return Placed::no;
  }
  bytes += frame_bytes;
  ++counters_.rx_frames;
  note_moved(frame_bytes);
  sink.on_placed_frame(frame, kHeadBytes, *offload);
  return Placed::yes;
}

void PacketLan::deliver(std::size_t slot, LanSink& sink, std::size_t& delivered) {
  mmsghdr& message = receiver_->messages[slot];
  const Receiver::Slot& about = receiver_->slots[slot];
  if (about.from.sll_pkttype == PACKET_OUTGOING) return;
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) return note_truncated();
  if (message.msg_len < sizeof(VirtioNetHeader) + frame::kEthernetHeaderBytes) {
    ++counters_.rx_truncated;
    return;
  }
  const std::size_t bytes = message.msg_len - sizeof(VirtioNetHeader);
  const auto memory = receiver_->bytes(slot).first(frame::kVlanTagBytes + bytes);
  std::span<const std::byte> frame = memory.subspan(frame::kVlanTagBytes);
  auto offload = frame::parse_virtio_net_header(about.header);
  if (const auto tag = stripped_tag(message.msg_hdr)) {
    frame = restore_tag(memory, *tag);
    if (offload) offload = frame::moved_by(*offload, frame::kVlanTagBytes);
  }
  ++counters_.rx_frames;
  ++delivered;
  note_moved(frame.size());
  if (offload) {
    sink.on_lan_frame(frame, *offload);
  } else {
    sink.on_lan_frame(frame);
  }
}

/// Counts what it refuses. head: with the Ethernet header.
bool PacketLan::may_send(std::span<const std::byte> head, std::size_t frame_bytes, const FrameOffload& offload) {
  const auto header = frame::parse_ethernet(head);
  const bool segmented = offload.kind != frame::SegmentKind::none;
  if (is_open() && header && frame_bytes <= (segmented ? frame::kMaxFrameBytes : longest_frame(*header))) return true;
  ++counters_.tx_errors;
  return false;
}

bool PacketLan::send_unfinished(std::span<const std::byte> frame, const FrameOffload& offload) {
  // A long frame is sent at once from where it lies: the copy into a batch would cost more than the system call.
  if (frame.size() > kLongFrameBytes) return send_gathered(frame, {}, offload);
  if (!may_send(frame, frame.size(), offload)) return false;
  const VirtioNetHeader header = frame::make_virtio_net_header(offload);
  if (!batch_.has_room(sizeof header + frame.size())) flush();
  batch_.add(bytes_of(header), frame);
  note_moved(frame.size());
  return true;
}

bool PacketLan::send_gathered(std::span<const std::byte> head, std::span<const iovec> payload,
                              const FrameOffload& offload) {
  std::size_t frame_bytes = head.size();
  for (const iovec& part : payload) frame_bytes += part.iov_len;
  if (!may_send(head, frame_bytes, offload)) return false;
  const VirtioNetHeader header = frame::make_virtio_net_header(offload);
  if (!batch_.has_room(sizeof header)) flush();
  note_moved(frame_bytes);
  batch_.refer(bytes_of(header), head, payload);
  flush();
  return true;
}

void PacketLan::flush() {
  const auto of_received = batch_.send(is_open() ? socket_.get() : -1, counters_, [this](std::size_t message) {
    if (interface_lost(errno)) check_at_once();
    if (errno != EINVAL) return;
    VirtioNetHeader header;
    std::memcpy(&header, batch_.header(message).data(), sizeof header);
    note_refusal(header, batch_.frame_bytes(message));
  });
  for (std::size_t frame = 0; frame < of_received; ++frame) note_undescribed();
}

/// The kernel has dropped a frame whose segmentation a virtio-net header can't describe.
void PacketLan::note_undescribed() {
  if (counters_.rx_undescribed++ != 0) return;
  log().warning(
      "LAN interface {0}: lost a merged frame that the kernel can't describe (SCTP, fragments, or the NIC's LRO); "
      "lan_undescribed counts further ones. If they are many: ethtool -K {0} lro off, or gro off",
      interface());
}

/// A super-frame of BIG TCP, which no session carries. Its sender retransmits it in smaller ones, one after the other.
void PacketLan::note_truncated() {
  ++counters_.rx_truncated;
  if (std::exchange(said_too_long_, true)) return;
  log().warning(
      "LAN interface {0}: lost a frame of more than {1} bytes (BIG TCP); lan_truncated counts further ones. "
      "If they are many: ip link set dev {0} gro_max_size 65536; for senders on this machine, "
      "gso_max_size 65536 on their interfaces",
      interface(), frame::kMaxFrameBytes);
}

/// A kernel that doesn't know super-frames of UDP says so only when it gets one. The driver cuts the next ones itself.
void PacketLan::note_refusal(const VirtioNetHeader& header, std::size_t frame_bytes) {
  const auto offload = frame::parse_virtio_net_header(header);
  if (refuses_udp_segments_ || !offload || offload->kind != frame::SegmentKind::udp) return;
  if (frame::counts_as_frames(frame_bytes, *offload) > kUdpSegmentsOfAnyKernel) return;
  refuses_udp_segments_ = true;
  log().info("LAN interface {}: the kernel takes no super-frames of UDP, so this program cuts them", interface());
}

void PacketLan::read_kernel_drops() {
  tpacket_stats statistics{};  // since the last query
  socklen_t bytes = sizeof statistics;
  if (::getsockopt(socket_.get(), SOL_PACKET, PACKET_STATISTICS, &statistics, &bytes) != 0) return;
  counters_.rx_kernel_drops += statistics.tp_drops;
}

}  // namespace splitnic::iounit
