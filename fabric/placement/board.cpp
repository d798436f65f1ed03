#include "fabric/placement/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

#include "common/os/errno_text.h"
#include "fabric/bridge/full_fence.h"

namespace splitnic::fabric {
namespace {

/// ends: board_ends().
BoardAccess access_of(std::uint64_t ends) {
  constexpr std::uint64_t kNumber = (1U << 24U) - 1;
  return {QpNumber{static_cast<std::uint32_t>(ends & kNumber)}, static_cast<std::uint16_t>(ends >> 48U)};
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Result<Mapping> Mapping::of(int descriptor, std::uint64_t offset, std::size_t bytes, bool writable) {
  void* at = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, descriptor,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) return fail("cannot map a file: {}", os::errno_text());
  return Mapping(static_cast<std::byte*>(at), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::string Board::name(std::uint16_t local_id) { return fmt::format("splitnic-board-{}", local_id); }

Result<std::unique_ptr<Board>> Board::create(std::uint16_t local_id, bool shows_witness, RandomSource& random) {
  os::UniqueFd file(memfd_create(name(local_id).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), kBoardBytes) != 0) return fail("no memory for a board: {}", os::errno_text());
  auto mapping = Mapping::of(file.get(), 0, kBoardBytes, /*writable=*/true);
  if (!mapping) return tl::unexpected(mapping.error());
  // From now on nobody can map it for writing: what is on it is the owner's.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return fail("cannot seal a board: {}", os::errno_text());
  }
  const PeerMemory memory = PeerMemory::over(mapping->data(), kBoardBytes);
  std::unique_ptr<Board> board(new Board(std::move(file), std::move(*mapping), memory));
  std::uint64_t identity = 0;
  while (identity == 0) identity = std::uint64_t{random.next32()} << 32U | random.next32();
  board->witness_ = std::make_unique<std::uint64_t>(identity);
  BoardHeader header{};
  header.magic = kBoardMagic;
  header.version = kBoardVersion;
  header.local_id = local_id;
  header.identity = identity;
  header.witness_address = shows_witness ? reinterpret_cast<std::uintptr_t>(board->witness_.get()) : 0;
  memory.store_bytes(0, bytes_of(header));
  return board;
}

bool Board::publish(BoardRegion region) {
  const std::lock_guard guard(lock_);
  const std::size_t set = board_set_at(Stag{region.tag});
  for (std::size_t way = 0; way < kBoardWays; ++way) {
    const std::size_t at = set + way * sizeof(BoardRegion);
    if (memory_.watch<std::uint32_t>(at) != 0) continue;
    // The last generation stays at the end of an empty place's tag word: see revoke().
    region.generation = memory_.watch<std::uint32_t>(at + offsetof(BoardRegion, tag)) + 1;
    if (region.generation == 0) region.generation = 1;
    constexpr std::size_t kBehind = sizeof region.generation;
    memory_.store_bytes(at + kBehind, bytes_of(region).subspan(kBehind));
    memory_.store(at, region.generation);
    return true;
  }
  return false;
}

bool Board::revoke(Stag tag) {
  const std::lock_guard guard(lock_);
  const std::size_t set = board_set_at(tag);
  for (std::size_t way = 0; way < kBoardWays; ++way) {
    const std::size_t at = set + way * sizeof(BoardRegion);
    const auto generation = memory_.watch<std::uint32_t>(at);
    if (generation == 0 || memory_.watch<std::uint32_t>(at + offsetof(BoardRegion, tag)) != tag.value) continue;
    memory_.store(at, std::uint32_t{0});
    memory_.store(at + offsetof(BoardRegion, tag), generation);
    full_fence();
    return true;
  }
  return false;
}

void Board::admit_peer(std::uint16_t local_id, std::uint64_t identity) {
  memory_.store(board_peer_at(local_id), identity);
  full_fence();
}

std::optional<BoardAccess> Board::connect(const PlacementUser& user, std::uint16_t peer) {
  const std::size_t at = board_queue_pair_at(user.number);
  const std::uint64_t ends = board_ends(user.number, user.peer, peer);
  const std::uint32_t rights{user.remote_rights.bits};
  const auto before = memory_.watch<std::uint64_t>(at);
  const bool same = before == ends &&
                    memory_.watch<std::uint32_t>(at + offsetof(BoardQueuePair, domain)) == user.domain.value &&
                    memory_.watch<std::uint32_t>(at + offsetof(BoardQueuePair, rights)) == rights;
  if (same) return std::nullopt;
  memory_.store(at, std::uint64_t{0});
  memory_.store(at + offsetof(BoardQueuePair, domain), user.domain.value);
  memory_.store(at + offsetof(BoardQueuePair, rights), rights);
  memory_.store(at, ends);
  return before == 0 ? std::nullopt : std::optional(access_of(before));
}

std::optional<BoardAccess> Board::disconnect(QpNumber number) {
  const std::size_t at = board_queue_pair_at(number);
  const BoardAccess before = access_of(memory_.watch<std::uint64_t>(at));
  if (before.queue_pair != number) return std::nullopt;
  memory_.store(at, std::uint64_t{0});
  full_fence();
  return before;
}

/// B1 (full fence): `busy` before the loads of the owner's words; pairs with the fence between the store into such a
/// word and the look at `busy` (Board::revoke, LocalPlacements::await_quiet). Without it both could miss each other,
/// and a store could land after the revocation.
void Board::enter(std::uint16_t owner) {
  memory_.store(offsetof(BoardHeader, busy), std::uint64_t{owner});
  full_fence();
}

/// B2 (release): what was stored in the owner's memory comes before both words; pairs with the loads in
/// LocalPlacements::await_quiet.
void Board::leave() {
  memory_.store(offsetof(BoardHeader, ended), ++ended_);
  memory_.store(offsetof(BoardHeader, busy), std::uint64_t{0});
}

void Board::clear() {
  const std::lock_guard guard(lock_);
  memory_.zero(kBoardHeaderBytes, kBoardBytes - kBoardHeaderBytes);
  full_fence();
}

}  // namespace splitnic::fabric
