#include "fabric/rdmacm/bindings.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/check.h"
#include "common/os/errno_text.h"
#include "common/os/unix_listener.h"
#include "fabric/endnode/fabric_directory.h"

namespace splitnic::rdmacm {
namespace {

constexpr unsigned kSpaceShift = 60;
constexpr unsigned kNumberShift = 44;
constexpr off_t kHalf = off_t{1} << 43U;
constexpr std::array kSpaces{Space::ipoib, Space::tcp, Space::udp, Space::ib};
/// Source: RFC 6335 and Linux, ip_local_port_range.
constexpr std::uint16_t kFirstEphemeral = 32768;
constexpr std::uint16_t kEphemerals = 60999 - kFirstEphemeral + 1;

off_t index_of(Space space) {
  for (std::size_t i = 0; i < kSpaces.size(); ++i) {
    if (kSpaces[i] == space) return static_cast<off_t>(i);
  }
  SPLITNIC_CHECK(false);
  return 0;
}

/// FNV-1a, folded into the bits that a lock has for an IPv6 address. Two addresses with one hash exclude each other.
off_t hash_of(const Address& address) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3U; };
  for (const std::uint8_t byte : address.bytes) mix(byte);
  for (unsigned shift = 0; shift < 32; shift += 8) mix(static_cast<std::uint8_t>(address.scope >> shift));
  return static_cast<off_t>((hash ^ hash >> 43U) & static_cast<std::uint64_t>(kHalf - 1));
}

struct flock record(const LockRange& range, short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = range.from;
  lock.l_len = range.bytes;
  return lock;
}

constexpr std::string_view kSocketPrefix = "cm-";
/// See lock_range(): 62 bits, and the bytes of both families.
constexpr std::size_t kLongestSocketName = sizeof "cm-3fffffffffffffff-100000000000" - 1;

/// "cm-FROM-BYTES", both in hexadecimal.
std::string name_of(const LockRange& range) {
  return fmt::format("{}{:x}-{:x}", kSocketPrefix, range.from, range.bytes);
}

/// The range in a name that name_of() made.
std::optional<LockRange> range_in(const std::string& name) {
  if (!name.starts_with(kSocketPrefix)) return std::nullopt;
  char* end = nullptr;
  LockRange range;
  range.from = std::strtoll(name.c_str() + kSocketPrefix.size(), &end, 16);
  if (*end != '-') return std::nullopt;
  range.bytes = std::strtoll(end + 1, &end, 16);
  if (*end != 0 || name_of(range) != name) return std::nullopt;
  return range;
}

}  // namespace

LockRange lock_range(const Binding& binding) {
  const off_t base = index_of(binding.space) << kSpaceShift | off_t{binding.address.number} << kNumberShift;
  if (binding.address.is_ip4()) {
    return binding.address.is_any() ? LockRange{base, kHalf} : LockRange{base + off_t{binding.address.ip4()}, 1};
  }
  if (!binding.address.is_any()) return {base + kHalf + hash_of(binding.address), 1};
  return binding.only_ip6 ? LockRange{base + kHalf, kHalf} : LockRange{base, 2 * kHalf};
}

std::string socket_name(const Binding& binding) { return name_of(lock_range(binding)); }

Result<std::unique_ptr<Bindings>> Bindings::open(const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, fabric::kBindingsFile);
  os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail("{}: {}", path, os::errno_text());
  os::UniqueFd folder;
  if (directory.size() + 1 + kLongestSocketName > os::kMaxSocketPathBytes) {
    folder = os::UniqueFd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return fail("{}: {}", directory, os::errno_text());
  }
  std::unique_ptr<Bindings> bindings(new Bindings(directory, std::move(file), std::move(folder)));
  bindings->remove_left_over();
  return bindings;
}

Bindings::Bindings(std::string directory, os::UniqueFd file, os::UniqueFd folder)
    : directory_(std::move(directory)), file_(std::move(file)), folder_(std::move(folder)) {}

bool Bindings::lock(const LockRange& range, short kind) const {
  struct flock wanted = record(range, kind);
  return ::fcntl(file_.get(), F_SETLK, &wanted) == 0;
}

bool Bindings::overlaps_own(const LockRange& range) const {
  auto next = own_.lower_bound(range.from);
  if (next != own_.end() && next->first < range.from + range.bytes) return true;
  return next != own_.begin() && (--next, next->first + next->second > range.from);
}

int Bindings::take_exactly(const Binding& binding) {
  const LockRange range = lock_range(binding);
  if (overlaps_own(range) || !lock(range, F_WRLCK)) return EADDRINUSE;
  own_.emplace(range.from, range.bytes);
  return 0;
}

int Bindings::take(Binding& binding, RandomSource& random) {
  const std::lock_guard guard(mutex_);
  if (binding.address.number != 0) return take_exactly(binding);
  const std::uint64_t start = random.below(kEphemerals);
  for (std::uint16_t tried = 0; tried < kEphemerals; ++tried) {
    binding.address.number = static_cast<std::uint16_t>(kFirstEphemeral + (start + tried) % kEphemerals);
    if (take_exactly(binding) == 0) return 0;
  }
  binding.address.number = 0;
  return EADDRINUSE;
}

void Bindings::give_back(const Binding& binding) {
  const std::lock_guard guard(mutex_);
  const LockRange range = lock_range(binding);
  SPLITNIC_CHECK(own_.erase(range.from) == 1);
  static_cast<void>(lock(range, F_UNLCK));
}

std::optional<pid_t> Bindings::holder(const Binding& binding) const {
  const std::lock_guard guard(mutex_);
  const LockRange range = lock_range(binding);
  if (overlaps_own(range)) return ::getpid();
  struct flock found = record(range, F_WRLCK);
  if (::fcntl(file_.get(), F_GETLK, &found) != 0 || found.l_type == F_UNLCK) return std::nullopt;
  return std::max(found.l_pid, 0);
}

std::string Bindings::socket_path(const Binding& binding) const {
  const std::string folder = folder_ ? fmt::format("/proc/self/fd/{}", folder_.get()) : directory_;
  return folder + "/" + socket_name(binding);
}

void Bindings::remove_left_over() {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto range = range_in(entry->path().filename().string());
    // Nobody holds it: so nobody listens there, and nobody begins to while it is locked.
    if (!range || range->bytes <= 0 || !lock(*range, F_WRLCK)) continue;
    ::unlink(entry->path().c_str());
    static_cast<void>(lock(*range, F_UNLCK));
  }
}

}  // namespace splitnic::rdmacm
