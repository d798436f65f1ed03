#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/os/daemon_status.h"
#include "common/result.h"

namespace splitnic::os {

/// The messages of a control socket (control.capnp), each behind its length:
///
///   0 bytes 32 (little-endian)   4 Cap'n Proto message, a multiple of 8 bytes
using ControlLength = boost::endian::little_uint32_buf_t;
static_assert(sizeof(ControlLength) == 4);

/// Words of a message, aligned as Cap'n Proto needs them.
using ControlMessage = std::vector<std::uint64_t>;

/// Room for the status of a unit with as many hosts as it may have (1024, some 4 KiB each).
inline constexpr std::size_t kMaxControlBytes = std::size_t{16} << 20U;
/// A request is a few words. A longer one belongs to another protocol.
inline constexpr std::size_t kMaxRequestBytes = 4096;

ControlMessage encode_request(ControlRequest request);
/// Errors: no known request.
Result<ControlRequest> decode_request(const ControlMessage& message);

ControlMessage encode_reply(const ControlAnswer& answer);
ControlMessage encode_error_reply(const std::string& error);
/// Errors: malformed, or the daemon's own error text.
Result<ControlAnswer> decode_reply(const ControlMessage& message);

}  // namespace splitnic::os
