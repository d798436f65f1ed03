#pragma once

#include <array>
#include <boost/endian/buffers.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "common/os/peer_socket.h"
#include "common/result.h"
#include "fabric/endnode/local_ids.h"

namespace splitnic::fabric {

/// A datagram by which an endnode asks another one to call it:
///
///     0       4         6       8
///    +-------+---------+-------+
///    | magic | version | from  |      little-endian; from: the local ID of the sender
///    +-------+---------+-------+
struct KnockMessage {
  boost::endian::little_uint32_buf_t magic;
  boost::endian::little_uint16_buf_t version;
  boost::endian::little_uint16_buf_t from;
};
static_assert(sizeof(KnockMessage) == 8 && alignof(KnockMessage) == 1);
inline constexpr std::uint32_t kKnockMagic = 0x4b4e4c53;  // "SLNK"
inline constexpr std::uint16_t kKnockVersion = 1;

/// A datagram socket in the fabric's folder that receives and sends knocks. A knock proves nothing about its sender.
/// The receiver calls the endnode that holds the ID in the knock. Thread: the owner.
class Knock {
 public:
  /// Replaces what is at the path, which belongs to the holder of the ID. refuse_descriptors: see os::PeerSocket.
  /// Errors: no descriptors, the path is too long.
  [[nodiscard]] static Result<Knock> listen(const std::string& path, LocalId own, bool refuse_descriptors = true);
  ~Knock();
  Knock(Knock&&) = default;
  Knock& operator=(Knock&&) = delete;

  /// False: nobody hears it, or not now.
  [[nodiscard]] bool send(const std::string& path) const;
  enum class Heard { nothing, knock, garbage };
  /// The next knock. from: who sent it, unless it is garbage. Never waits, whatever was sent.
  [[nodiscard]] Heard hear(LocalId& from) const;
  [[nodiscard]] int descriptor() const { return socket_.get(); }

 private:
  Knock(os::PeerSocket socket, std::string path, LocalId own)
      : socket_(std::move(socket)), path_(std::move(path)), own_(own) {}

  os::PeerSocket socket_;
  std::string path_;
  LocalId own_;
};

}  // namespace splitnic::fabric
