// A stranger's hello: any bytes, in any number. What is believed of it must be safe to use as it is, and encoding it
// again gives the same bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/check.h"
#include "fabric/bridge/shm_setup.h"

using namespace splitnic::fabric;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::array<std::byte, kShmHelloBytes + 8> bytes{};
  std::size_t count = std::min(size - 1, bytes.size());
  if ((data[0] & 1U) != 0) {
    // Half of the inputs start from a good hello, so that single fields are reached.
    const ShmHello good = encode_shm_hello({.purpose = ShmPurpose::further_queue, .cookie = 1, .name = "host"});
    std::memcpy(bytes.data(), &good, sizeof good);
    for (std::size_t i = 1; i + 2 <= size; i += 2) bytes[data[i] % bytes.size()] = static_cast<std::byte>(data[i + 1]);
    count = bytes.size() - (data[0] >> 1U);
  } else {
    std::memcpy(bytes.data(), data + 1, count);
  }
  const auto received = std::span(bytes).first(count);
  const auto fields = decode_shm_hello(received);
  if (!fields) {
    const bool incomplete = fields.error().fault == ShmHelloFault::incomplete;
    SPLITNIC_CHECK(incomplete == (fields.error().field[0] == 0));
    SPLITNIC_CHECK(!incomplete || count < kShmHelloBytes);
    return 0;
  }
  SPLITNIC_CHECK(count >= kShmHelloBytes);
  SPLITNIC_CHECK(is_valid_shm_name(fields->name));
  SPLITNIC_CHECK((fields->purpose == ShmPurpose::further_queue) == (fields->cookie != 0));
  const ShmHello again = encode_shm_hello(*fields);
  SPLITNIC_CHECK(std::memcmp(&again, bytes.data(), sizeof again) == 0);
  return 0;
}
