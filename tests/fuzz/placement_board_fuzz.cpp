// A peer's placement board, whose bytes change at any time: what this end then does in the peer's memory stays inside a
// region that the board showed, with a right that it granted, and a file that becomes shorter is no fault.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "common/check.h"
#include "fabric/memory/guarded_copy.h"
#include "fabric/placement/peer_board.h"
#include "tests/hostile_sessions/input.h"

using namespace splitnic;
using namespace splitnic::fabric;

namespace {

constexpr std::uint16_t kPeer = 7;
constexpr std::uint16_t kOwn = 9;
constexpr std::uint64_t kOwnIdentity = 0x0102'0304'0506'0708;
constexpr std::uint64_t kPeerIdentity = 0x1112'1314'1516'1718;
constexpr std::size_t kFileBytes = 3 * 4096;
constexpr std::byte kUntouched{0x55};
constexpr std::uint32_t kDomain = 6;
const Stag kTag = Stag::from(2, 0x77);
const QpNumber kOwnPair{0x1234};
const QpNumber kPeerPair{0x5};

/// The peer is this process, too: its board, and a file with its memory.
struct Peer {
  os::UniqueFd board{memfd_create(Board::name(kPeer).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  os::UniqueFd file{memfd_create("region", MFD_CLOEXEC)};
  Mapping shown = mapped();
  std::vector<std::byte> memory = std::vector<std::byte>(kFileBytes);  // what a region of the process may name
  std::uint64_t witness = kPeerIdentity;
  struct stat status {};

  Mapping mapped() const {
    SPLITNIC_CHECK(ftruncate(board.get(), kBoardBytes) == 0);
    SPLITNIC_CHECK(fcntl(board.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    auto made = Mapping::of(board.get(), 0, kBoardBytes, /*writable=*/true);
    SPLITNIC_CHECK(made.has_value());
    return std::move(*made);
  }
  template <class T>
  void put(std::size_t at, const T& value) {
    std::memcpy(shown.data() + at, &value, sizeof value);
  }
  void resize(std::size_t bytes) { SPLITNIC_CHECK(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0); }

  void begin() {
    std::memset(shown.data(), 0, kBoardBytes);
    resize(0);
    resize(kFileBytes);
    const std::vector<std::byte> untouched(kFileBytes, kUntouched);
    SPLITNIC_CHECK(pwrite(file.get(), untouched.data(), kFileBytes, 0) == kFileBytes);
    std::ranges::fill(memory, kUntouched);
    SPLITNIC_CHECK(fstat(file.get(), &status) == 0);
  }
  void show_header(hostile::Input& input) {
    BoardHeader header{};
    header.magic = input.near_double(kBoardMagic);
    header.version = input.near(kBoardVersion);
    header.local_id = input.near(kPeer);
    header.identity = input.near_double(kPeerIdentity);
    // An address that is not this process's makes a system call fail.
    header.witness_address = input.near_double(reinterpret_cast<std::uintptr_t>(&witness));
    put(0, header);
  }
  void show_region(hostile::Input& input) {
    const bool in_file = input.byte() % 2 == 0;
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    BoardRegion region{};
    region.generation = input.near(1);
    region.tag = input.near(kTag.value);
    region.base = input.near_double(0x10'0000);
    region.length = input.near_double(2 * 4096);
    region.domain = input.near(kDomain);
    region.rights = input.near(std::uint32_t{(Right::remote_read | Right::remote_write).bits});
    region.memory = static_cast<BoardMemory>(input.near(in_file ? 1 : 2));
    region.descriptor = input.near(static_cast<std::uint32_t>(file.get()));
    region.device = input.near_double(status.st_dev);
    region.inode = input.near_double(status.st_ino);
    region.place = input.near_double(in_file ? 64 : address);
    put(board_set_at(kTag) + input.byte() % kBoardWays * sizeof region, region);
  }
  void show_connection(hostile::Input& input) {
    put(board_peer_at(kOwn), input.near_double(kOwnIdentity));
    const BoardQueuePair pair{input.near_double(board_ends(kPeerPair, kOwnPair, kOwn)), input.near(kDomain),
                              input.near(std::uint32_t{(Right::remote_read | Right::remote_write).bits})};
    put(board_queue_pair_at(kPeerPair), pair);
  }
};

/// What may be used of a region: it is where the board says, and in a mapping, or in the process.
void check_region(const Peer& peer, const PlacedRegion& region, bool wants_process) {
  SPLITNIC_CHECK(region.usable && region.about.length != 0);
  SPLITNIC_CHECK(region.about.base + region.about.length > region.about.base);
  SPLITNIC_CHECK(region.about.place + region.about.length > region.about.place);
  SPLITNIC_CHECK(region.file.has_value() == (region.about.memory == BoardMemory::file));
  if (!region.file) {
    SPLITNIC_CHECK(wants_process && region.about.memory == BoardMemory::process);
    return;
  }
  SPLITNIC_CHECK(region.about.device == peer.status.st_dev && region.about.inode == peer.status.st_ino);
  SPLITNIC_CHECK(region.file->first <= region.about.place);
  SPLITNIC_CHECK(region.about.place - region.file->first + region.about.length <= region.file->mapping.size());
}

/// An access of this end, as LocalPlacements makes it.
void access(Peer& peer, PeerBoard& board, bool wants_process, hostile::Input& input) {
  std::optional<std::size_t> wanted;
  const PlacedRegion* region = board.find(kTag, wanted);
  if (region == nullptr && wanted) {
    const auto ended = board.install(board.prepare(*wanted));
    wanted.reset();
    region = board.find(kTag, wanted);
  }
  const Right right = input.byte() % 2 == 0 ? Right::remote_write : Right::remote_read;
  PlacementTarget target;
  target.number = kOwnPair;
  target.peer = kPeerPair;
  target.remote = {input.near_double(0x10'0000 + 8 * input.half()), kTag};
  target.bytes = 1 + input.byte();
  if (region == nullptr) return;
  check_region(peer, *region, wants_process);
  if (!region->allows(target, right) || !board.admits(target, *region, right, kOwn, kOwnIdentity)) return;
  const std::uint64_t offset = target.remote.address - region->about.base;
  SPLITNIC_CHECK(Rights{static_cast<std::uint16_t>(region->about.rights)}.has(right));
  SPLITNIC_CHECK(offset < region->about.length && target.bytes <= region->about.length - offset);
  const auto address = reinterpret_cast<std::uintptr_t>(peer.memory.data());
  const bool in_memory = region->about.place >= address && region->about.place - address < kFileBytes &&
                         region->about.length <= kFileBytes - (region->about.place - address);
  if (!region->file && !in_memory) return;  // here the peer's own memory would be the fuzzer's

  std::array<std::byte, 256> bytes{};
  const std::array parts{iovec{bytes.data(), target.bytes / 2},
                         iovec{bytes.data() + target.bytes / 2, target.bytes - target.bytes / 2}};
  if (right == Right::remote_read) {
    static_cast<void>(board.load(target, *region, parts));
    return;
  }
  // The bytes around the target stay.
  static_cast<void>(board.store(target, *region, parts));
  const std::uint64_t begin = region->about.place + offset;
  std::vector<std::byte> now(kFileBytes);
  std::size_t have = kFileBytes;
  if (region->file) {
    have = static_cast<std::size_t>(std::max<ssize_t>(0, pread(peer.file.get(), now.data(), kFileBytes, 0)));
  } else {
    now = peer.memory;
  }
  const std::uint64_t first = region->file ? begin : begin - address;
  for (std::size_t at = 0; at < have; ++at) {
    if (at >= first && at - first < target.bytes) continue;
    SPLITNIC_CHECK(now[at] == kUntouched || now[at] == std::byte{0});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Peer peer;
  static const bool guarded = (enable_guarded_copy(), true);
  SPLITNIC_CHECK(guarded);
  hostile::Input input(std::span(data, size));
  peer.begin();
  const bool wants_process = input.byte() % 2 == 0;
  peer.show_header(input);
  BoardHeader header{};
  std::memcpy(&header, peer.shown.data(), sizeof header);
  const auto board = PeerBoard::open(getpid(), kPeer, wants_process);
  const bool known = header.magic == kBoardMagic && header.version == kBoardVersion && header.local_id == kPeer &&
                     header.identity != 0;
  SPLITNIC_CHECK((board != nullptr) == known);
  if (board == nullptr) return 0;
  SPLITNIC_CHECK(board->identity() == header.identity);
  peer.show_connection(input);
  peer.show_region(input);
  for (int steps = 0; steps < 64 && !input.empty(); ++steps) {
    switch (input.byte() % 5) {
      case 0:
        peer.show_region(input);
        break;
      case 1:
        peer.show_connection(input);
        break;
      case 2:  // any byte
        peer.put((input.word() % kBoardBytes), input.byte());
        break;
      case 3:  // shorter, or longer again
        peer.resize(input.half() % (kFileBytes + 1));
        break;
      default:
        access(peer, *board, wants_process, input);
    }
  }
  return 0;
}
