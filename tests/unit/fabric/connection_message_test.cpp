#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "fabric/connect/connection_message.h"

namespace splitnic::fabric::connection_message_test {
namespace {

using Kind = ConnectionMessageKind;
using Fault = ConnectionFault;
using Bytes = std::vector<std::byte>;

constexpr std::array kKinds{Kind::request, Kind::received,           Kind::reject,          Kind::reply,
                            Kind::ready,   Kind::disconnect_request, Kind::disconnect_reply};

PrivateData data_of(std::size_t bytes) {
  std::vector<std::byte> made(bytes, std::byte{0xab});
  return PrivateData::of(made).value();
}

/// A good message of the kind, every field of which is set that the kind has.
ConnectionMessage message_of(Kind kind, std::size_t private_bytes = 3) {
  ConnectionMessage message;
  message.kind = kind;
  message.sender = ConnectionNumber{0x0a0b0c0d};
  if (kind != Kind::request) message.receiver = ConnectionNumber{0x01020304};
  if (kind == Kind::request || kind == Kind::reply) {
    message.end = {QpNumber{0x112233}, 0x44556677, 0x8899, 0xaabb, kind == Kind::reply};
  }
  if (kind == Kind::reject) message.reason = RejectReason::by_program;
  if (kind == Kind::request) message.service = ServiceNumber{0x1122334455667788};
  message.data = data_of(private_bytes);
  return message;
}

Bytes bytes_of(const ConnectionMessage& message) {
  ConnectionMessageBytes encoded = encode_connection(message);
  const auto span = encoded.span();
  return {span.begin(), span.end()};
}

Bytes hex(const char* text) {
  Bytes bytes;
  for (; *text != 0; text += *text == ' ' ? 1 : 2) {
    if (*text != ' ') bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text, 2), nullptr, 16)));
  }
  return bytes;
}

template <class Value>
Bytes with(Bytes bytes, std::size_t offset, Value value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);  // this machine is little-endian, as the wire is
  return bytes;
}

std::optional<Fault> fault_of(const Bytes& bytes) {
  const auto message = decode_connection(bytes);
  return message ? std::nullopt : std::optional(message.error());
}

}  // namespace

TEST_CASE("connection messages have these bytes", "[fabric][connection][wire]") {
  CHECK(bytes_of(message_of(Kind::request)) == hex("01 10 01 03 0d0c0b0a 00000000 33221100 77665544 9988 bbaa 0000 0000"
                                                   "8877665544332211 ababab"));
  CHECK(bytes_of(message_of(Kind::received)) ==
        hex("01 11 00 03 0d0c0b0a 04030201 00000000 00000000 0000 0000 0000 0000 ababab"));
  CHECK(bytes_of(message_of(Kind::reject)) ==
        hex("01 12 00 03 0d0c0b0a 04030201 00000000 00000000 0000 0000 1c00 0000 ababab"));
  CHECK(bytes_of(message_of(Kind::reply)) ==
        hex("01 13 00 03 0d0c0b0a 04030201 33221100 77665544 9988 bbaa 0000 0000 ababab"));
  CHECK(bytes_of(message_of(Kind::ready)) ==
        hex("01 14 00 03 0d0c0b0a 04030201 00000000 00000000 0000 0000 0000 0000 ababab"));
  CHECK(bytes_of(message_of(Kind::disconnect_request)) ==
        hex("01 15 00 03 0d0c0b0a 04030201 00000000 00000000 0000 0000 0000 0000 ababab"));
  CHECK(bytes_of(message_of(Kind::disconnect_reply)) ==
        hex("01 16 00 03 0d0c0b0a 04030201 00000000 00000000 0000 0000 0000 0000 ababab"));
}

TEST_CASE("connection messages are read as they were written, with every length of private data",
          "[fabric][connection][wire]") {
  for (const Kind kind : kKinds) {
    const std::size_t most = kind == Kind::request ? kMaxRequestPrivateBytes : kMaxPrivateBytes;
    for (std::size_t bytes = 0; bytes <= most; ++bytes) {
      const ConnectionMessage message = message_of(kind, bytes);
      const Bytes encoded = bytes_of(message);
      REQUIRE(encoded.size() == connection_message_bytes(kind, bytes));
      REQUIRE(encoded.size() <= kMaxConnectionMessage);
      const auto decoded = decode_connection(encoded);
      REQUIRE(decoded.has_value());
      REQUIRE(*decoded == message);
    }
  }
  CHECK_FALSE(PrivateData::of(Bytes(kMaxPrivateBytes + 1)).has_value());
}

TEST_CASE("a connection message that is longer or shorter than it says is refused", "[fabric][connection][wire]") {
  for (const Kind kind : kKinds) {
    const Bytes good = bytes_of(message_of(kind));
    for (std::size_t bytes = 0; bytes < 300; ++bytes) {
      Bytes changed = good;
      changed.resize(bytes);
      CHECK(fault_of(changed) == (bytes == good.size() ? std::nullopt : std::optional(Fault::length)));
    }
  }
}

TEST_CASE("each field of a connection message, at its boundaries", "[fabric][connection][wire]") {
  struct Row {
    const char* what;
    Kind kind;
    Bytes bytes;
    std::optional<Fault> fault;
  };
  std::vector<Row> rows;
  const auto add = [&rows](const char* what, Kind kind, auto offset, auto value, std::optional<Fault> fault) {
    rows.push_back({what, kind, with(bytes_of(message_of(kind)), offset, value), fault});
  };
  const auto u8 = [](unsigned value) { return static_cast<std::uint8_t>(value); };
  const auto u16 = [](unsigned value) { return static_cast<std::uint16_t>(value); };
  for (const Kind kind : kKinds) {
    const bool request = kind == Kind::request;
    const bool has_end = request || kind == Kind::reply;
    const bool reject = kind == Kind::reject;
    const auto only = [](bool fine, Fault otherwise) { return fine ? std::nullopt : std::optional(otherwise); };
    for (const unsigned version : {0U, 2U, 255U}) add("version", kind, 0U, u8(version), Fault::version);
    for (const unsigned unknown : {0U, 0x0fU, 0x17U, 255U}) add("kind", kind, 1U, u8(unknown), Fault::kind);
    add("flag 0", kind, 2U, u8(0), std::nullopt);
    add("flag 1", kind, 2U, u8(1), only(request, Fault::flags));
    for (const unsigned flags : {2U, 3U, 0x80U}) add("flags", kind, 2U, u8(flags), Fault::flags);
    add("sender 0", kind, 4U, 0U, only(reject, Fault::sender));
    add("sender 1", kind, 4U, 1U, std::nullopt);
    add("sender, last", kind, 4U, 0xffffffffU, std::nullopt);
    add("receiver 0", kind, 8U, 0U, only(request, Fault::receiver));
    add("receiver 1", kind, 8U, 1U, only(!request, Fault::receiver));
    add("queue pair 0", kind, 12U, 0U, only(!has_end, Fault::queue_pair));
    const Fault bad_number = has_end ? Fault::queue_pair : Fault::unused;
    add("queue pair 1", kind, 12U, 1U, bad_number);
    add("queue pair 2", kind, 12U, 2U, only(has_end, Fault::unused));
    add("queue pair, last", kind, 12U, 0xfffffeU, only(has_end, Fault::unused));
    add("the multicast queue pair", kind, 12U, 0xffffffU, bad_number);
    add("queue pair of 25 bits", kind, 12U, 0x1000002U, bad_number);
    add("psn", kind, 16U, 0xffffffffU, only(has_end, Fault::unused));
    add("reads in", kind, 20U, u16(0xffff), only(has_end, Fault::unused));
    add("reads out", kind, 22U, u16(1), only(has_end, Fault::unused));
    add("reserved", kind, 26U, u16(1), Fault::unused);
    add("reserved, last bit", kind, 26U, u16(0x8000), Fault::unused);
    for (const unsigned known : {1U, 3U, 4U, 6U, 8U, 28U})
      add("reason", kind, 24U, u16(known), only(reject, Fault::reason));
    for (const unsigned unknown : {2U, 5U, 7U, 9U, 27U, 29U, 0xffffU}) {
      add("unknown reason", kind, 24U, u16(unknown), Fault::reason);
    }
    add("no reason", kind, 24U, u16(0), only(!reject, Fault::reason));
    if (request) {
      add("service 0", kind, 28U, std::uint64_t{0}, Fault::service);
      add("service 1", kind, 28U, std::uint64_t{1}, std::nullopt);
      add("service, last", kind, 28U, ~std::uint64_t{0}, std::nullopt);
    }
    const std::size_t most = request ? kMaxRequestPrivateBytes : kMaxPrivateBytes;
    for (const std::size_t beyond : {most + 1, std::size_t{255}}) {
      Bytes longer = with(bytes_of(message_of(kind, 0)), 3, static_cast<std::uint8_t>(beyond));
      longer.resize(longer.size() + beyond);
      rows.push_back({"private bytes", kind, longer, Fault::private_bytes});
    }
  }
  for (const Row& row : rows) {
    INFO(row.what << " of kind " << static_cast<int>(row.kind));
    CHECK(fault_of(row.bytes) == row.fault);
    if (row.fault) continue;
    CHECK(bytes_of(decode_connection(row.bytes).value()) == row.bytes);
  }
  for (std::size_t fault = 0; fault < kConnectionFaults; ++fault) {
    const auto seen = [fault](const Row& row) { return row.fault == static_cast<Fault>(fault); };
    INFO(to_string(static_cast<Fault>(fault)));
    CHECK((std::ranges::any_of(rows, seen) || static_cast<Fault>(fault) == Fault::length));
  }
}

}  // namespace splitnic::fabric::connection_message_test
