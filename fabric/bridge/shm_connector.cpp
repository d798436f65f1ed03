#include "fabric/bridge/shm_connector.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/os/close_elsewhere.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/passed_descriptors.h"
#include "common/os/unix_address.h"
#include "fabric/bridge/attested_peer.h"
#include "fabric/bridge/shm_bridge.h"
#include "fabric/bridge/shm_memory.h"

namespace splitnic::fabric {
namespace {

std::optional<Error> check_doorbell(int socket) {
  int domain = 0;
  int type = 0;
  socklen_t bytes = sizeof domain;
  const bool is_socket = getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 &&
                         getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0;
  if (is_socket && domain == AF_UNIX && type == SOCK_SEQPACKET) return std::nullopt;
  return Error{"the unit's doorbell descriptor is not a packet socket"};
}

/// Writing to another kind of file could block, or have effects. Of the kernel's objects without a file, eventfds alone
/// accept such a number. The eventfd is non-blocking from here on, whatever the unit made it, so that neither this
/// write nor ring() waits.
std::optional<Error> check_bell_to_ring(int event) {
  struct statfs file_system {};
  const std::uint64_t nothing = 0;
  if (fstatfs(event, &file_system) == 0 && file_system.f_type == ANON_INODE_FS_MAGIC &&
      fcntl(event, F_SETFL, O_NONBLOCK) == 0 && ::write(event, &nothing, sizeof nothing) == sizeof nothing) {
    return std::nullopt;
  }
  return Error{"the unit's second doorbell descriptor is not an eventfd"};
}

/// Of a stream: neither now nor later are there descriptors in its queue.
bool is_empty_for_good(int socket) {
  std::byte first{};
  return os::refuse_descriptors(socket) &&
         os::receive_bytes(socket, std::span(&first, 1), MSG_PEEK | MSG_DONTWAIT) <= 0;
}

bool same_file(int first, int second) {
  struct stat a {};
  struct stat b {};
  return fstat(first, &a) == 0 && fstat(second, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string refusal(std::uint32_t status, std::uint32_t version) {
  switch (static_cast<ShmSetupStatus>(status)) {
    case ShmSetupStatus::other_version:
      return fmt::format("the unit speaks version {} of the shm set-up, this host version {}", version,
                         kShmSetupVersion);
    case ShmSetupStatus::not_permitted:
      return "the unit does not permit this user to connect";
    case ShmSetupStatus::bad_sizes:
      return "the unit refuses the requested memory sizes";
    case ShmSetupStatus::no_resources:
      return "the unit lacks memory or descriptors for another host";
    case ShmSetupStatus::no_place:
      return "the unit serves as many hosts as it may";
    case ShmSetupStatus::user_limit:
      return "this user has as many hosts, or as much memory, as the unit gives to one user, or this host as many "
             "queues";
    case ShmSetupStatus::purpose_refused:
      return "the unit does not serve this kind of connection";
    case ShmSetupStatus::no_session:
      return "the unit has no such session of this user";
    case ShmSetupStatus::ok:
      break;
  }
  return fmt::format("the unit refused with unknown status {}", status);
}

/// The other refusals may end at any moment: somebody leaves, or a session comes up.
bool is_by_rule(std::uint32_t status) {
  switch (static_cast<ShmSetupStatus>(status)) {
    case ShmSetupStatus::other_version:
    case ShmSetupStatus::not_permitted:
    case ShmSetupStatus::bad_sizes:
    case ShmSetupStatus::user_limit:
    case ShmSetupStatus::purpose_refused:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::unique_ptr<ShmConnector>> ShmConnector::start(const ShmConnectOptions& options, Time now) {
  if (auto fits = os::check_socket_path(options.path); !fits) return tl::unexpected(fits.error());
  if (!is_valid_shm_name(options.name)) return fail("{}: a name without control characters is needed", options.path);
  const os::UnixAddress address(options.path);
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail("cannot create a socket: {}", os::errno_text());
  if (connect(socket.get(), address.get(), os::UnixAddress::size()) != 0) {
    return fail("cannot connect to {}: {}", options.path, os::errno_text());
  }
  return start_connected(std::move(socket), options, now);
}

Result<std::unique_ptr<ShmConnector>> ShmConnector::start_connected(os::UniqueFd socket,
                                                                    const ShmConnectOptions& options, Time now) {
  const ShmHello hello = encode_shm_hello({.local_bytes = options.local_bytes,
                                           .window_bytes = options.window_bytes,
                                           .purpose = options.purpose,
                                           .cookie = options.cookie,
                                           .features = options.features,
                                           .name = options.name});
  std::unique_ptr<ShmConnector> connector(new ShmConnector(options, std::move(socket), now));
  const ssize_t sent = os::send_bytes(connector->descriptor(), std::as_bytes(std::span(&hello, 1)), MSG_DONTWAIT);
  // A unit that does not permit this user replies and hangs up before the hello arrives; its reply gives the reason.
  const bool hung_up = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
  if (sent != static_cast<ssize_t>(sizeof hello) && !hung_up) {
    return fail("cannot send the hello to {}: {}", options.path, os::errno_text());
  }
  return connector;
}

ShmConnector::~ShmConnector() {
  if (!options_.closes_elsewhere) return;
  std::erase_if(descriptors_, [](const os::UniqueFd& descriptor) { return !descriptor; });
  if (!is_empty_for_good(socket_.get())) descriptors_.push_back(std::move(socket_));
  static_cast<void>(os::close_elsewhere(std::move(descriptors_)));
}

std::optional<Result<std::unique_ptr<Bridge>>> ShmConnector::poll(Time now) {
  if (auto error = receive()) return fail("{}: {}", options_.path, error->message);
  if (auto error = check_identity()) return fail("{}: {}", options_.path, error->message);
  if (got_ == reply_.size()) {
    auto bridge = finish();
    if (!bridge) return fail("{}: {}", options_.path, bridge.error().message);
    return bridge;
  }
  if (now >= deadline_) return fail("{}: no answer from the unit", options_.path);
  return std::nullopt;
}

/// Receives the available part of the reply. Descriptors may come with any of its bytes. They are copied first, and the
/// bytes are taken out of the queue when all of them are here. So the ones in the queue are never the last: neither
/// those for which there is no room, nor those that the kernel closes as the bytes are taken.
std::optional<Error> ShmConnector::receive() {
  const auto room = std::span(reply_).subspan(got_);
  auto received = os::receive_with_descriptors(socket_.get(), room, kShmSetupDescriptors, MSG_PEEK | MSG_DONTWAIT);
  const ssize_t got = received.bytes;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got < 0) return Error{fmt::format("connection lost during set-up: {}", os::errno_text())};
  std::ranges::move(received.descriptors, std::back_inserter(descriptors_));
  if (received.more || descriptors_.size() > kShmSetupDescriptors) {
    return Error{fmt::format("the unit sent more than {} descriptors, or some were cut off", kShmSetupDescriptors)};
  }
  if (got == 0) return Error{"the unit hung up during set-up"};
  if (os::receive_bytes(socket_.get(), room.first(static_cast<std::size_t>(got)), MSG_DONTWAIT) != got) {
    return Error{"connection lost during set-up"};
  }
  got_ += static_cast<std::size_t>(got);
  return std::nullopt;
}

/// Another version's reply may be shorter than this one's.
std::optional<Error> ShmConnector::check_identity() {
  if (got_ < kShmIdentityBytes) return std::nullopt;
  ShmReply reply{};
  std::memcpy(&reply, reply_.data(), kShmIdentityBytes);
  if (reply.magic.value() != kShmSetupMagic) return Error{"the peer is not a splitnic I/O unit"};
  const std::uint32_t version = reply.version.value();
  if (version == kShmSetupVersion) return std::nullopt;
  refused_by_rule_ = true;
  return Error{refusal(static_cast<std::uint32_t>(ShmSetupStatus::other_version), version)};
}

std::optional<Error> ShmConnector::check_status(const ShmReply& reply) {
  const std::uint32_t status = reply.status.value();
  if (status == static_cast<std::uint32_t>(ShmSetupStatus::ok)) return std::nullopt;
  refused_by_rule_ = is_by_rule(status);
  const auto is_zero = [](std::byte byte) { return byte == std::byte{}; };
  if (std::ranges::all_of(std::span(reply_).subspan(kShmIdentityBytes), is_zero)) {
    return Error{refusal(status, kShmSetupVersion)};
  }
  return Error{"a field of the unit's refusal is not zero"};
}

/// Of a reply with status ok, those that say nothing about memory.
std::optional<Error> ShmConnector::check_fields(const ShmReply& reply) const {
  if (reply.reserved[0].value() != 0 || reply.reserved[1].value() != 0) {
    return Error{"a reserved field of the unit's reply is not zero"};
  }
  if ((reply.features.value() & ~options_.features) != 0) {
    return Error{"the unit's reply has features that this host did not offer"};
  }
  const bool new_session = options_.purpose == ShmPurpose::session;
  const std::uint64_t cookie = reply.cookie.value();
  if (new_session && cookie == 0) return Error{"the unit's reply has no cookie for the session"};
  if (!new_session && cookie != options_.cookie) return Error{"the unit's reply has another session's cookie"};
  return std::nullopt;
}

Result<std::unique_ptr<Bridge>> ShmConnector::finish() {
  ShmReply reply;
  std::memcpy(&reply, reply_.data(), sizeof reply);
  if (auto refused = check_status(reply)) return tl::unexpected(*refused);
  if (auto bad = check_fields(reply)) return tl::unexpected(*bad);
  if (descriptors_.size() != kShmSetupDescriptors) {
    return fail("the unit sent {} descriptors instead of {}", descriptors_.size(), kShmSetupDescriptors);
  }
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30U;
  const std::uint64_t local_bytes = reply.local_bytes.value();
  const std::uint64_t window_bytes = reply.window_bytes.value();
  for (const std::uint64_t bytes : {local_bytes, window_bytes}) {
    if (bytes < kShmMinBytes || bytes > kMaxBytes || bytes % ShmMemory::kHeaderBytes != 0) {
      return fail("the unit's memory of {} bytes can't be used", bytes);
    }
  }
  if (same_file(descriptors_[0].get(), descriptors_[1].get())) return fail("the unit sent the same memory twice");
  if (auto bad = check_doorbell(descriptors_[2].get())) return tl::unexpected(*bad);
  if (auto bad = check_bell_to_ring(descriptors_[3].get())) return tl::unexpected(*bad);
  auto local = ShmMemory::adopt(std::move(descriptors_[0]), local_bytes);
  if (!local) return tl::unexpected(local.error());
  auto window = ShmMemory::adopt(std::move(descriptors_[1]), window_bytes);
  if (!window) return tl::unexpected(window.error());
  (*local)->close_descriptor();
  (*window)->close_descriptor();
  cookie_ = reply.cookie.value();
  features_ = reply.features.value();
  const HostDoorbell::Options of_doorbell{.shuts_down = options_.shuts_down,
                                          .refuses = os::refuse_descriptors(descriptors_[2].get()),
                                          .closes_elsewhere = options_.closes_elsewhere};
  auto doorbell = std::make_unique<HostDoorbell>(std::move(descriptors_[2]), std::move(descriptors_[3]), of_doorbell);
  const bool may_grow = (features_ & kShmFeatureFurtherQueues) != 0;
  const BridgeGroup group{.cookie = may_grow || options_.purpose == ShmPurpose::further_queue ? cookie_ : 0,
                          .further = options_.purpose == ShmPurpose::further_queue};
  return std::make_unique<ShmBridge>(ShmParts{std::move(*local), std::move(*window), std::move(doorbell)},
                                     attested_peer(socket_.get()), std::function<void(ShmParts)>{}, group);
}

}  // namespace splitnic::fabric
