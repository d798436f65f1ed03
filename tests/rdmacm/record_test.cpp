#include "fabric/rdmacm/record.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace splitnic::rdmacm::record_test {
namespace {

Address address_with(std::uint8_t last, std::uint16_t number) {
  Address address = any_ip4();
  address.bytes[12] = 10;
  address.bytes[15] = last;
  address.number = number;
  return address;
}

Record request() {
  Record record;
  record.kind = RecordKind::request;
  record.queue_pair = 0x123456;
  record.starting_psn = 0xabcdef;
  record.local_id = 0x1234;
  record.space = static_cast<std::uint16_t>(Space::tcp);
  record.responder_resources = 16;
  record.initiator_depth = 8;
  record.retry_count = 7;
  record.rnr_retry_count = 6;
  record.flow_control = 1;
  record.shared_receives = 1;
  record.private_bytes = 2;
  record.source = address_with(1, 40000);
  record.destination = address_with(2, 7174);
  record.private_data[0] = std::byte{0xaa};
  record.private_data[1] = std::byte{0xbb};
  return record;
}

std::vector<std::byte> bytes_of(const Record& record) {
  const RecordBytes bytes = encode(record);
  std::vector<std::byte> out(sizeof bytes);
  std::memcpy(out.data(), &bytes, sizeof bytes);
  return out;
}

TEST_CASE("a request of connection management has these bytes", "[rdmacm]") {
  const auto bytes = bytes_of(request());
  REQUIRE(bytes.size() == 272);
  std::string text;
  for (std::size_t i = 0; i < 80; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  CHECK(text ==
        "534c434d"
        "0100"
        "01"
        "00"
        "56341200"
        "efcdab00"
        "00000000"
        "3412"
        "0000"
        "0601"
        "10"
        "08"
        "07"
        "06"
        "01"
        "01"
        "02"
        "000000"
        "00000000000000000000ffff0a000001"
        "00000000000000000000ffff0a000002"
        "409c"
        "061c"
        "00000000"
        "aabb0000");
}

TEST_CASE("every kind of record is decoded as it was encoded", "[rdmacm]") {
  std::vector<Record> records{request()};
  Record reply = request();
  reply.kind = RecordKind::reply;
  reply.space = 0;
  reply.private_bytes = kReplyBytes;
  reply.private_data.fill(std::byte{7});
  records.push_back(reply);
  reply.datagrams = true;
  reply.private_bytes = 0;
  reply.private_data = {};
  reply.queue_key = 0x01234567;
  records.push_back(reply);
  for (const auto kind : {RecordKind::ready, RecordKind::disconnect, RecordKind::reject}) {
    Record record;
    record.kind = kind;
    record.reason = kind == RecordKind::reject ? kConsumerDefined : std::uint16_t{0};
    records.push_back(record);
  }
  for (const Record& record : records) {
    const auto decoded = decode(bytes_of(record));
    REQUIRE(decoded);
    CHECK(*decoded == record);
  }
}

TEST_CASE("a record with a fault is refused, and the fault is named", "[rdmacm]") {
  struct Fault {
    RecordFault fault;
    std::function<void(Record&)> plant;
  };
  const std::vector<Fault> faults{
      {RecordFault::flags,
       [](Record& record) {
         record = {};
         record.kind = RecordKind::ready;
         record.datagrams = true;
       }},
      {RecordFault::queue_pair, [](Record& record) { record.queue_pair = 0x1000000; }},
      {RecordFault::starting_psn, [](Record& record) { record.starting_psn = 0x1000000; }},
      {RecordFault::local_id, [](Record& record) { record.local_id = 0; }},
      {RecordFault::local_id, [](Record& record) { record.local_id = 0xc000; }},
      {RecordFault::reason, [](Record& record) { record.reason = 1; }},
      {RecordFault::reason,
       [](Record& record) {
         record = {};
         record.kind = RecordKind::reject;
       }},
      {RecordFault::space, [](Record& record) { record.space = 0x0107; }},
      {RecordFault::space, [](Record& record) { record.kind = RecordKind::reply; }},
      {RecordFault::retry_count, [](Record& record) { record.retry_count = 8; }},
      {RecordFault::retry_count, [](Record& record) { record.rnr_retry_count = 8; }},
      {RecordFault::flow_control, [](Record& record) { record.flow_control = 2; }},
      {RecordFault::flow_control, [](Record& record) { record.shared_receives = 2; }},
      {RecordFault::private_bytes, [](Record& record) { record.private_bytes = kRequestBytes + 1; }},
      {RecordFault::private_data, [](Record& record) { record.private_bytes = 1; }},
      {RecordFault::scope,
       [](Record& record) {
         record.kind = RecordKind::reply;
         record.space = 0;
         record.source.scope = 1;
       }},
  };
  for (const Fault& fault : faults) {
    Record record = request();
    fault.plant(record);
    const auto decoded = decode(bytes_of(record));
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error() == fault.fault);
  }
  struct Spot {
    RecordFault fault;
    std::size_t at;
    std::uint8_t value;
  };
  for (const Spot& spot :
       {Spot{RecordFault::magic, 0, 0}, Spot{RecordFault::version, 4, 2}, Spot{RecordFault::kind, 6, 0},
        Spot{RecordFault::kind, 6, 6}, Spot{RecordFault::flags, 7, 2}, Spot{RecordFault::reserved, 35, 1}}) {
    auto bytes = bytes_of(request());
    bytes[spot.at] = std::byte{spot.value};
    const auto decoded = decode(bytes);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error() == spot.fault);
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{271}, std::size_t{273}}) {
    const auto decoded = decode(std::vector<std::byte>(size));
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error() == RecordFault::size);
  }
}

TEST_CASE("each kind of record has its own room for private data", "[rdmacm]") {
  CHECK(private_room(RecordKind::request, false) == 56);
  CHECK(private_room(RecordKind::reply, false) == 196);
  CHECK(private_room(RecordKind::reject, false) == 148);
  CHECK(private_room(RecordKind::request, true) == 180);
  CHECK(private_room(RecordKind::reply, true) == 136);
  CHECK(private_room(RecordKind::ready, false) == 0);
  CHECK(private_room(RecordKind::disconnect, false) == 0);
}

}  // namespace
}  // namespace splitnic::rdmacm::record_test
