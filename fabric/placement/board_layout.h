#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fabric/ids.h"
#include "fabric/memory/rights.h"

namespace splitnic::fabric {

/// What an endnode shows the others of its user about its memory and its queue pairs: a sealed memfd, which the owner
/// alone can write. All numbers are in host order: it never leaves the machine.
///
///         0  header
///     4 KiB  queue pairs, kBoardQueuePairs x 16 bytes; the place of a number is number modulo kBoardQueuePairs
///    68 KiB  regions, kBoardRegions x 64 bytes, in sets of four; the set of a tag is its index modulo the sets
///   324 KiB  admitted peers, a 64-bit word for each local ID: the identity of the peer's board, 0: not admitted
///
/// An initiator stores into the owner's memory only while all of this holds, after it has published `busy`:
///   - the owner admits it, and so has mapped the initiator's board and sees its `busy`
///   - the word of the peer's queue pair names both queue pairs and the initiator
///   - the region's generation is what it was when the initiator read the place
/// The owner ends an access by a store into one of these words; then it looks at every admitted peer's `busy`, and
/// waits while one of them is at work in its memory. Work that has begun later, as `ended` shows, does not count: it
/// has seen the store. Source: design, "Direct writes", "Protection".
struct BoardHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t local_id;
  std::uint64_t identity;         ///< random, of this board; not 0
  std::uint64_t witness_address;  ///< of a word in the owner's private memory, which holds the identity; 0: none
  std::array<std::uint64_t, 3> reserved;
  std::uint64_t ended;  ///< how often the board's owner has ended its work in somebody's memory; 0: it does not count
  std::uint64_t busy;   ///< 0, or the local ID of the endnode whose memory the board's owner is working in
};
static_assert(sizeof(BoardHeader) == 72 && offsetof(BoardHeader, ended) == 56 && offsetof(BoardHeader, busy) == 64);
static_assert(std::is_trivially_copyable_v<BoardHeader>);

inline constexpr std::uint64_t kBoardMagic = 0x3164'7262'636e'7073;  // "spncbrd1"
inline constexpr std::uint32_t kBoardVersion = 1;
inline constexpr std::size_t kBoardQueuePairs = 4096;
inline constexpr std::size_t kBoardRegions = 4096;
inline constexpr std::size_t kBoardWays = 4;
inline constexpr std::size_t kBoardPeers = 1U << 16U;

/// ends: connection_ends(), and in bits 48 .. 63 the peer's local ID; 0: not connected. Written last, and cleared
/// first.
struct BoardQueuePair {
  std::uint64_t ends;
  std::uint32_t domain;
  std::uint32_t rights;
};
static_assert(sizeof(BoardQueuePair) == 16);

/// Where the bytes are.
enum class BoardMemory : std::uint32_t {
  file = 1,     ///< in a file, of which the owner holds a descriptor
  process = 2,  ///< in the owner's address space
};

/// generation: 0 empty, else new with each region in this place; written last, and cleared first.
struct BoardRegion {
  std::uint32_t generation;
  std::uint32_t tag;
  std::uint64_t base;  ///< that keys name the first byte by
  std::uint64_t length;
  std::uint32_t domain;
  std::uint32_t rights;
  BoardMemory memory;
  std::uint32_t descriptor;  ///< file: the owner's number of it
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t place;  ///< of the first byte: offset in the file, or address
};
static_assert(sizeof(BoardRegion) == 64 && std::is_trivially_copyable_v<BoardRegion>);

inline constexpr std::size_t kBoardHeaderBytes = 4096;
inline constexpr std::size_t kBoardRegionsAt = kBoardHeaderBytes + kBoardQueuePairs * sizeof(BoardQueuePair);
inline constexpr std::size_t kBoardPeersAt = kBoardRegionsAt + kBoardRegions * sizeof(BoardRegion);
inline constexpr std::size_t kBoardBytes = kBoardPeersAt + kBoardPeers * sizeof(std::uint64_t);

[[nodiscard]] constexpr std::uint64_t board_ends(QpNumber number, QpNumber peer, std::uint16_t local_id) {
  return connection_ends(number, peer) | std::uint64_t{local_id} << 48U;
}
[[nodiscard]] constexpr std::size_t board_queue_pair_at(QpNumber number) {
  return kBoardHeaderBytes + number.value % kBoardQueuePairs * sizeof(BoardQueuePair);
}
/// Of the first place that the tag may have.
[[nodiscard]] constexpr std::size_t board_set_at(Stag tag) {
  return kBoardRegionsAt + tag.index() % (kBoardRegions / kBoardWays) * kBoardWays * sizeof(BoardRegion);
}
[[nodiscard]] constexpr std::size_t board_peer_at(std::uint16_t local_id) {
  return kBoardPeersAt + local_id * sizeof(std::uint64_t);
}

}  // namespace splitnic::fabric
