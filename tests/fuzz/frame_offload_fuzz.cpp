// Whatever a frame holds: what the offload hands out fits the MTU, is final (a second pass leaves it alone), and has
// been left alone when it says so. Input: MTU, 16 bits little-endian, then the frame.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "common/frame/ethernet.h"
#include "common/frame/multicast.h"
#include "common/frame/software_offload.h"

namespace {

using splitnic::frame::OffloadResult;

void check_final(std::span<const std::byte> finished, std::uint32_t mtu) {
  const auto header = splitnic::frame::parse_ethernet(finished);
  SPLITNIC_CHECK(header.has_value());
  SPLITNIC_CHECK_OP(finished.size(), <=, header->payload_offset + mtu);
  static splitnic::frame::SoftwareOffload again;
  const auto result = again.complete(finished, mtu, [&](std::span<const std::byte> second) {
    SPLITNIC_CHECK(second.data() == finished.data() && second.size() == finished.size());
  });
  SPLITNIC_CHECK(result == OffloadResult::unchanged);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t mtu = data[0] | static_cast<std::uint32_t>(data[1]) << 8U;
  const auto frame = std::as_bytes(std::span(data + 2, size - 2));

  static splitnic::frame::SoftwareOffload offload;
  std::size_t frames = 0;
  const auto result = offload.complete(frame, mtu, [&](std::span<const std::byte> finished) {
    ++frames;
    check_final(finished, mtu);
  });
  switch (result) {
    case OffloadResult::unchanged:
    case OffloadResult::finished:
      SPLITNIC_CHECK_OP(frames, ==, 1U);
      break;
    case OffloadResult::segmented:
      SPLITNIC_CHECK_OP(frames, >=, 2U);
      break;
    default:
      SPLITNIC_CHECK_OP(frames, ==, 0U);
  }
  static_cast<void>(splitnic::frame::is_membership_report(frame));
  return 0;
}
