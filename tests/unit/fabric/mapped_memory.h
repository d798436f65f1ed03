#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <vector>

namespace splitnic::fabric {

inline std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// Pages of a test's own, to protect and unmap. A hole may be filled by anybody at the next allocation (a sanitizer's
/// own included): where that matters, ask before the next CHECK, or protect with PROT_NONE instead.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t bytes, int rights = PROT_READ | PROT_WRITE)
      : MappedMemory(bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1) {}
  /// A shared mapping of a file.
  MappedMemory(int file, std::size_t bytes) : MappedMemory(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file) {}
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    for (std::size_t page = 0; page < mapped_.size(); ++page) {
      if (mapped_[page]) munmap(at(page * page_bytes()), page_bytes());
    }
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return data_ + offset; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

  void protect(int rights) const { mprotect(data_, bytes_, rights); }
  void protect(std::size_t offset, std::size_t bytes, int rights) const { mprotect(data_ + offset, bytes, rights); }

  void unmap() { unmap(0, bytes_); }
  /// Whole pages, still mapped.
  void unmap(std::size_t offset, std::size_t bytes) {
    munmap(data_ + offset, bytes);
    for (std::size_t page = offset / page_bytes(); page * page_bytes() < offset + bytes; ++page) mapped_[page] = false;
  }
  /// Fresh pages of zeros where these were, if the place is still free.
  void map_again() {
    for (std::size_t page = 0; page < mapped_.size(); ++page) {
      map_at(page, mapped_[page] ? MAP_FIXED : MAP_FIXED_NOREPLACE);
      mapped_[page] = true;
    }
  }

 private:
  MappedMemory(std::size_t bytes, int rights, int flags, int file)
      : bytes_(bytes), mapped_((bytes + page_bytes() - 1) / page_bytes(), true) {
    void* const mapped = mmap(nullptr, bytes, rights, flags, file, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(mapped);
  }
  void map_at(std::size_t page, int how) const {
    void* const place = at(page * page_bytes());
    if (mmap(place, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0) != place) {
      throw std::bad_alloc();
    }
  }

  std::size_t bytes_;
  std::byte* data_ = nullptr;
  std::vector<bool> mapped_;  ///< by page
};

/// A file without a name, in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::size_t bytes) : descriptor_(memfd_create("splitnic-test", MFD_CLOEXEC)) { resize(bytes); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  void resize(std::size_t bytes) const {
    if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
  }

 private:
  int descriptor_;
};

}  // namespace splitnic::fabric
