#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "messaging/wire/cfgutil.h"
#include "messaging/wire/encode.h"
#include "messaging/wire/messages.h"

/// One valid message of every kind, and how messages look in words: for the vectors and the tests of the wire.
namespace splitnic::messaging::wire::samples {

using Bytes = std::vector<std::byte>;

struct Sample {
  std::string name;  ///< fit for a file name
  Bytes bytes;
  /// Of CfgUtil replies: what they answer, which they do not say themselves.
  std::optional<CfgRequest> replies_to{};
};

/// Every function, every CfgUtil request and every CfgUtil reply.
std::vector<Sample> every_message();

/// Runs an encoder over a buffer that is large enough, and returns what it used.
template <class Encode>
Bytes encoded(Encode&& encode_into) {
  Bytes buffer(sizeof(SendDataHead) + kMaxFrameBytes + 1024);
  buffer.resize(encode_into(std::span(buffer)));
  return buffer;
}

/// A message from its bytes in hex, for pinning them.
Bytes from_hex(std::string_view hex);

HelloRequest sample_hello();
HelloReply sample_hello_reply();

/// One "field = value" line per field of the message, as decode() (and for CfgUtil decode_request() or decode_reply())
/// understands it within the default limits; the fault if it doesn't.
std::string describe(const Sample& sample);

/// "0000  01 00 ...", 16 bytes a line.
std::string hex_dump(const Bytes& bytes);

}  // namespace splitnic::messaging::wire::samples
