#include "fabric/threads/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "common/os/errno_text.h"

namespace splitnic::fabric {

Result<ForkMark> ForkMark::make() {
  const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail("cannot map a page: {}", os::errno_text());
  ForkMark mark(static_cast<std::uint64_t*>(page), bytes);
  if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) return fail("cannot mark a page: {}", os::errno_text());
  *mark.mark_ = 1;
  return mark;
}

ForkMark::ForkMark(ForkMark&& other) noexcept : mark_(std::exchange(other.mark_, nullptr)), bytes_(other.bytes_) {}

ForkMark::~ForkMark() {
  if (mark_ != nullptr) ::munmap(mark_, bytes_);
}

}  // namespace splitnic::fabric
