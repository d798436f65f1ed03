#include "common/frame/checksum.h"

#include <boost/endian/conversion.hpp>
#include <cstring>

#include "common/frame/headers.h"

namespace splitnic::frame {
namespace {

template <class Word>
Word word_at(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The byte order doesn't matter until the end (RFC 1071, 2 B), so words are added in memory order. Sums of 32-bit words
// in 64-bit accumulators need no carry handling. Four accumulators don't depend on each other.
std::uint64_t sum_of(std::span<const std::byte> piece) {
  constexpr std::size_t kBlock = 32;
  constexpr std::uint64_t kLow = 0xffffffff;
  std::uint64_t lanes[4] = {};
  const std::byte* at = piece.data();
  std::size_t left = piece.size();
  for (; left >= kBlock; left -= kBlock, at += kBlock) {
    const auto first = word_at<std::uint64_t>(at);
    const auto second = word_at<std::uint64_t>(at + 8);
    const auto third = word_at<std::uint64_t>(at + 16);
    const auto fourth = word_at<std::uint64_t>(at + 24);
    lanes[0] += first & kLow;
    lanes[1] += first >> 32U;
    lanes[2] += second & kLow;
    lanes[3] += second >> 32U;
    lanes[0] += third & kLow;
    lanes[1] += third >> 32U;
    lanes[2] += fourth & kLow;
    lanes[3] += fourth >> 32U;
  }
  for (; left >= 4; left -= 4, at += 4) lanes[0] += word_at<std::uint32_t>(at);
  if (left >= 2) {
    lanes[1] += word_at<std::uint16_t>(at);
    left -= 2;
    at += 2;
  }
  if (left == 1) {  // padded with a zero byte
    const std::byte last[2] = {*at, std::byte{0}};
    lanes[1] += word_at<std::uint16_t>(last);
  }
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

}  // namespace

InternetSum& InternetSum::add(std::span<const std::byte> piece) {
  const std::uint64_t sum = sum_of(piece);
  sum_ += (sum & 0xffffffff) + (sum >> 32U);
  return *this;
}

InternetSum& InternetSum::add_number(std::uint16_t number) {
  sum_ += boost::endian::native_to_big(number);
  return *this;
}

std::uint16_t InternetSum::folded() const {
  std::uint64_t sum = sum_;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16U);
  return boost::endian::big_to_native(static_cast<std::uint16_t>(sum));
}

InternetSum pseudo_header_sum(std::span<const std::byte> source, std::span<const std::byte> destination,
                              std::uint8_t protocol, std::uint16_t bytes) {
  InternetSum sum;
  sum.add(source).add(destination).add_number(protocol).add_number(bytes);
  return sum;
}

std::uint16_t ipv4_header_checksum(std::span<const std::byte> header) {
  constexpr std::size_t kField = offsetof(Ipv4Header, checksum);
  InternetSum sum;
  sum.add(header.first(kField)).add(header.subspan(kField + 2));
  return sum.checksum();
}

}  // namespace splitnic::frame
