#include "fabric/placement/peer_board.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "common/range.h"
#include "fabric/memory/guarded_copy.h"

namespace splitnic::fabric {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

template <class T>
T read_from(const PeerMemory& memory, std::size_t at) {
  T copy;
  memory.next_message(at, sizeof copy);
  memory.copy_out(at, std::as_writable_bytes(std::span(&copy, 1)));
  return copy;
}

void* foreign_pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): of another process
}

/// The number of the process's descriptor that is called so; -1: there is none, or nobody may look.
int find_descriptor(pid_t pid, const std::string& name) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return -1;
  const std::string wanted = fmt::format("/memfd:{} (deleted)", name);
  int found = -1;
  while (const dirent* entry = readdir(entries)) {
    std::array<char, 128> link{};
    const ssize_t length = readlinkat(dirfd(entries), entry->d_name, link.data(), link.size());
    if (length <= 0 || std::string_view(link.data(), static_cast<std::size_t>(length)) != wanted) continue;
    found = open(fmt::format("{}/{}", folder, entry->d_name).c_str(), O_RDONLY | O_CLOEXEC);
    break;
  }
  closedir(entries);
  return found;
}

}  // namespace

bool PlacedRegion::allows(const PlacementTarget& target, Right right) const {
  const Rights rights{static_cast<std::uint16_t>(about.rights)};
  return rights.has(right) && ByteRange{about.base, about.length}.contains({target.remote.address, target.bytes});
}

std::shared_ptr<PeerBoard> PeerBoard::open(pid_t pid, std::uint16_t local_id, bool wants_process) {
  const os::UniqueFd file(find_descriptor(pid, Board::name(local_id)));
  return file ? adopt(pid, file.get(), local_id, wants_process) : nullptr;
}

std::shared_ptr<PeerBoard> PeerBoard::adopt(pid_t pid, int descriptor, std::uint16_t local_id, bool wants_process) {
  struct stat status {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  // Without the seal a load could raise SIGBUS.
  const bool sound = seals >= 0 && (static_cast<unsigned>(seals) & F_SEAL_SHRINK) != 0 &&
                     fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(kBoardBytes);
  if (!sound) return nullptr;
  auto mapping = Mapping::of(descriptor, 0, kBoardBytes, /*writable=*/false);
  if (!mapping) return nullptr;
  const PeerMemory memory = PeerMemory::over(mapping->data(), kBoardBytes);
  const auto header = read_from<BoardHeader>(memory, 0);
  const bool known = header.magic == kBoardMagic && header.version == kBoardVersion && header.local_id == local_id &&
                     header.identity != 0;
  if (!known) return nullptr;
  std::shared_ptr<PeerBoard> board(new PeerBoard(pid, std::move(*mapping), memory, header));
  if (wants_process && header.witness_address != 0) {
    std::uint64_t read = 0;
    const iovec here{&read, sizeof read};
    const iovec there{foreign_pointer(header.witness_address), sizeof read};
    board->reaches_process_ =
        process_vm_readv(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof read) && read == header.identity;
  }
  return board;
}

const PlacedRegion* PeerBoard::find_slowly(Stag tag, std::optional<std::size_t>& wanted) {
  const std::size_t set = board_set_at(tag);
  for (std::size_t at = set; at != set + kBoardWays * sizeof(BoardRegion); at += sizeof(BoardRegion)) {
    const auto generation = memory_.watch<std::uint32_t>(at);
    if (generation == 0 || memory_.watch<std::uint32_t>(at + offsetof(BoardRegion, tag)) != tag.value) continue;
    const auto known = regions_.find(at);
    const bool current =
        known != regions_.end() && known->second.about.generation == generation && known->second.about.tag == tag.value;
    if (!current) wanted = at;
    if (!current || !known->second.usable) return nullptr;
    last_ = &known->second;
    return last_;
  }
  return nullptr;
}

PlacedRegion PeerBoard::prepare(std::size_t at) const {
  PlacedRegion region;
  region.at = at;
  region.about = read_from<BoardRegion>(memory_, at);
  // Torn, or ended meanwhile: it stays unusable, and the next look finds another generation.
  const bool whole = region.about.generation != 0 && memory_.watch<std::uint32_t>(at) == region.about.generation;
  const bool sound = region.about.length != 0 && region.about.length <= ~region.about.base &&
                     region.about.length <= ~region.about.place;
  if (!whole || !sound) return region;
  if (region.about.memory == BoardMemory::process) {
    region.usable = reaches_process_;
  } else if (region.about.memory == BoardMemory::file) {
    const Rights rights{static_cast<std::uint16_t>(region.about.rights)};
    region.file = map_peer_file(pid_, region.about, rights.has(Right::remote_write));
    region.usable = region.file.has_value();
  }
  return region;
}

std::vector<PlacedRegion> PeerBoard::install(PlacedRegion region) {
  std::vector<PlacedRegion> ended;
  for (auto known = regions_.begin(); known != regions_.end();) {
    if (known->first != region.at && is_current(known->second)) {
      ++known;
      continue;
    }
    files_ -= known->second.file ? 1U : 0U;
    ended.push_back(std::move(known->second));
    known = regions_.erase(known);
  }
  last_ = nullptr;
  if (region.file && files_ == kMostFiles) {
    region.usable = false;
    ended.push_back(PlacedRegion{region.at, region.about, false, std::move(region.file)});
    region.file.reset();
  }
  files_ += region.file ? 1U : 0U;
  regions_.emplace(region.at, std::move(region));
  return ended;
}

bool PeerBoard::admits(const PlacementTarget& target, const PlacedRegion& region, Right right, std::uint16_t initiator,
                       std::uint64_t identity) const {
  const std::size_t at = board_queue_pair_at(target.peer);
  if (memory_.watch<std::uint64_t>(board_peer_at(initiator)) != identity) return false;
  if (memory_.watch<std::uint64_t>(at) != board_ends(target.peer, target.number, initiator)) return false;
  const Rights rights{static_cast<std::uint16_t>(memory_.watch<std::uint32_t>(at + offsetof(BoardQueuePair, rights)))};
  const auto domain = memory_.watch<std::uint32_t>(at + offsetof(BoardQueuePair, domain));
  return rights.has(right) && domain == region.about.domain && is_current(region);
}

bool PeerBoard::store(const PlacementTarget& target, const PlacedRegion& region, std::span<const iovec> from) const {
  const std::uint64_t offset = target.remote.address - region.about.base;
  if (region.file) {
    std::byte* to = region.file->mapping.data() + (region.about.place - region.file->first) + offset;
    for (const iovec& part : from) {
      if (!guarded_copy(to, part.iov_base, part.iov_len)) return false;
      to += part.iov_len;
    }
    return true;
  }
  // The kernel may copy the bytes of one piece in any order, so the last word is a piece of its own.
  const std::uint64_t begin = region.about.place + offset;
  const std::uint64_t last = std::max(begin, (begin + target.bytes - 1) / kWord * kWord);
  const std::array there{iovec{foreign_pointer(begin), last - begin},
                         iovec{foreign_pointer(last), begin + target.bytes - last}};
  return process_vm_writev(pid_, from.data(), from.size(), there.data(), there.size(), 0) ==
         static_cast<ssize_t>(target.bytes);
}

bool PeerBoard::load(const PlacementTarget& target, const PlacedRegion& region, std::span<const iovec> to) const {
  const std::uint64_t offset = target.remote.address - region.about.base;
  if (region.file) {
    const std::byte* from = region.file->mapping.data() + (region.about.place - region.file->first) + offset;
    for (const iovec& part : to) {
      if (!guarded_copy(part.iov_base, from, part.iov_len)) return false;
      from += part.iov_len;
    }
    return true;
  }
  const iovec there{foreign_pointer(region.about.place + offset), target.bytes};
  return process_vm_readv(pid_, to.data(), to.size(), &there, 1, 0) == static_cast<ssize_t>(target.bytes);
}

}  // namespace splitnic::fabric
