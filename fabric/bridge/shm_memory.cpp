#include "fabric/bridge/shm_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/os/blocked_signals.h"
#include "common/os/errno_text.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::fabric {
namespace {

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// A MemoryMappable of Boost.Interprocess: it has a handle to map.
struct Mappable {
  int descriptor;
  [[nodiscard]] boost::interprocess::mapping_handle_t get_mapping_handle() const { return {descriptor, false}; }
};

/// Sets the size, and allocates the pages now, where a lack of memory is an error. Later it would be a SIGBUS. When a
/// signal comes, many kernels (Debian 12's among them) free what they have allocated and give up (EINTR). A program
/// with a fast timer would never get its memory, so its signals wait. A signal to stop can't wait: then this starts
/// over.
bool allocate(int descriptor, off_t bytes) {
  const os::BlockedSignals undisturbed;
  int failed = 0;
  do {
    failed = fallocate(descriptor, 0, 0, bytes);
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

}  // namespace

Result<std::unique_ptr<ShmMemory>> ShmMemory::create(std::size_t bytes) {
  const auto total = static_cast<off_t>(kHeaderBytes + bytes);
  os::UniqueFd descriptor(memfd_create("splitnic-bridge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) return fail("cannot create shared memory: {}", os::errno_text());
  if (!allocate(descriptor.get(), total)) {
    return fail("cannot allocate {} bytes of shared memory: {}", total, os::errno_text());
  }
  if (fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    return fail("cannot seal shared memory: {}", os::errno_text());
  }
  return map(std::move(descriptor), bytes);
}

Result<std::unique_ptr<ShmMemory>> ShmMemory::adopt(os::UniqueFd&& descriptor, std::size_t bytes) {
  struct stat status {};
  struct statfs file_system {};
  if (fstat(descriptor.get(), &status) != 0 || fstatfs(descriptor.get(), &file_system) != 0) {
    return fail("the peer's memory descriptor cannot be examined: {}", os::errno_text());
  }
  // Huge pages come from a pool. If the pool is empty, a store to a punched-out page raises SIGBUS.
  if (!S_ISREG(status.st_mode) || file_system.f_type != TMPFS_MAGIC) {
    return fail("the peer's memory descriptor is not a memfd of ordinary pages");
  }
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (static_cast<unsigned>(seals) & kSeals) != kSeals) {
    return fail("the peer's memory is not sealed against changes of its size");
  }
  if (status.st_size != static_cast<off_t>(kHeaderBytes + bytes)) {
    return fail("the peer's memory has {} bytes instead of {}", status.st_size, kHeaderBytes + bytes);
  }
  return map(std::move(descriptor), bytes);
}

Result<std::unique_ptr<ShmMemory>> ShmMemory::map(os::UniqueFd descriptor, std::size_t bytes) {
  namespace ipc = boost::interprocess;
  try {
    ipc::mapped_region region(Mappable{descriptor.get()}, ipc::read_write, 0, kHeaderBytes + bytes);
    return std::unique_ptr<ShmMemory>(new ShmMemory(std::move(descriptor), std::move(region)));
  } catch (const ipc::interprocess_exception& error) {
    return fail("cannot map shared memory: {}", error.what());
  }
}

void ShmMemory::prefault(std::size_t offset, std::size_t bytes) const {
  if (offset >= mapped_bytes()) return;
  static_cast<void>(madvise(base() + offset, std::min(bytes, mapped_bytes() - offset), MADV_POPULATE_WRITE));
}

void ShmMemory::discard() const { static_cast<void>(madvise(base(), region_.get_size(), MADV_REMOVE)); }

PeerMemory ShmMemory::local() const {
  return PeerMemory::over(base() + kHeaderBytes, region_.get_size() - kHeaderBytes);
}

PeerWindow ShmMemory::window() const {
  return PeerWindow::mapped(base() + kHeaderBytes, region_.get_size() - kHeaderBytes);
}

PeerMemory ShmMemory::local_scratchpads() const {
  return PeerMemory::over(base(), kScratchpads * sizeof(std::uint32_t));
}

PeerWindow ShmMemory::window_scratchpads() const {
  return PeerWindow::mapped(base(), kScratchpads * sizeof(std::uint32_t));
}

}  // namespace splitnic::fabric
