#include "fabric/bridge/shm_setup.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace splitnic::fabric {
namespace {

tl::unexpected<ShmHelloError> garbage(const char* field) {
  return tl::unexpected(ShmHelloError{ShmHelloFault::garbage, field});
}

bool padded_by_zeros(const std::array<char, kShmNameBytes>& name, std::size_t bytes) {
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(bytes), name.end(), [](char c) { return c == 0; });
}

}  // namespace

bool is_valid_shm_name(std::string_view name) {
  return name.size() <= kShmNameBytes && std::ranges::none_of(name, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 32 || byte == 127;
         });
}

ShmHello encode_shm_hello(const ShmHelloFields& fields) {
  SPLITNIC_CHECK(is_valid_shm_name(fields.name));
  SPLITNIC_CHECK((fields.purpose == ShmPurpose::further_queue) == (fields.cookie != 0));
  ShmHello hello{};
  hello.magic = kShmSetupMagic;
  hello.version = kShmSetupVersion;
  hello.local_bytes = fields.local_bytes;
  hello.window_bytes = fields.window_bytes;
  hello.purpose = static_cast<std::uint32_t>(fields.purpose);
  hello.cookie = fields.cookie;
  hello.features = fields.features;
  std::ranges::copy(fields.name, hello.name.begin());
  return hello;
}

tl::expected<ShmHelloFields, ShmHelloError> decode_shm_hello(std::span<const std::byte> received) {
  const auto incomplete = tl::unexpected(ShmHelloError{ShmHelloFault::incomplete, ""});
  if (received.size() < kShmIdentityBytes) return incomplete;
  ShmHello hello{};
  std::memcpy(&hello, received.data(), std::min(received.size(), sizeof hello));
  if (hello.magic.value() != kShmSetupMagic) return garbage("magic");
  // Before the rest, because the hello of another version may be shorter.
  if (hello.version.value() != kShmSetupVersion) {
    return tl::unexpected(ShmHelloError{ShmHelloFault::other_version, "version"});
  }
  if (received.size() < sizeof hello) return incomplete;
  if (hello.reserved.value() != 0 || hello.reserved_2.value() != 0 || hello.reserved_3.value() != 0) {
    return garbage("reserved");
  }
  ShmHelloFields fields;
  fields.local_bytes = hello.local_bytes.value();
  fields.window_bytes = hello.window_bytes.value();
  fields.purpose = static_cast<ShmPurpose>(hello.purpose.value());
  if (fields.purpose < ShmPurpose::session || fields.purpose > ShmPurpose::endnode) return garbage("purpose");
  fields.cookie = hello.cookie.value();
  if ((fields.purpose == ShmPurpose::further_queue) != (fields.cookie != 0)) return garbage("cookie");
  fields.features = hello.features.value();
  const auto bytes = static_cast<std::size_t>(std::ranges::find(hello.name, '\0') - hello.name.begin());
  fields.name.assign(hello.name.data(), bytes);
  if (!is_valid_shm_name(fields.name) || !padded_by_zeros(hello.name, bytes)) return garbage("name");
  return fields;
}

}  // namespace splitnic::fabric
