// A library for LD_PRELOAD. Only the kernel could make the files of a device, and some programs look for them:
//  - UCX uses a device only if /dev/infiniband has a character device with its name, which it may read and write; it
//    never opens it. Programs that ask for it by stat() or access() are told of /dev/null.
//  - Tools read the counters of a device below /sys/class/infiniband. What they open or ask for there is looked for
//    below $SPLITNIC_SYSFS first, where the verbs library writes the counters.
// Every other path is passed on.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabric/ibverbs/names.h"

namespace {

constexpr char kDevices[] = "/dev/infiniband/";
constexpr char kSysfs[] = "/sys";
constexpr char kFolder[] = "/sys/class/infiniband";

/// Where a path leads. A null pointer stays one: the kernel refuses it.
class Seen {
 public:
  explicit Seen(const char* path) : path_(path) {
    if (path == nullptr || std::strncmp(path, kFolder, sizeof kFolder - 1) != 0) return;
    const char* rest = path + sizeof kFolder - 1;
    const char* tree = std::getenv(splitnic::ibverbs::kSysfsVariable);
    if (tree == nullptr || *tree == 0 || (*rest != 0 && *rest != '/')) return;
    const int length = std::snprintf(other_.data(), other_.size(), "%s%s", tree, path + sizeof kSysfs - 1);
    const bool fits = length > 0 && static_cast<std::size_t>(length) < other_.size();
    if (fits && syscall(SYS_faccessat, AT_FDCWD, other_.data(), F_OK) == 0) path_ = other_.data();
  }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
  ~Seen() = default;

  [[nodiscard]] const char* path() const { return path_; }
  /// The same for questions about the file alone.
  [[nodiscard]] const char* asked() const {
    if (path_ == nullptr || std::strncmp(path_, kDevices, sizeof kDevices - 1) != 0) return path_;
    const bool ours = std::strcmp(path_ + sizeof kDevices - 1, splitnic::ibverbs::kDeviceFile) == 0;
    return ours ? "/dev/null" : path_;
  }

 private:
  std::array<char, PATH_MAX> other_;  // written only when it is used
  const char* path_;
};

/// The function of this name that the program would have called, found once.
template <class Function>
Function* next(std::atomic<void*>& known, const char* name) {
  void* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = dlsym(RTLD_NEXT, name);
    known.store(function, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(function);
}
#define NEXT(name)                             \
  ([]() {                                      \
    static std::atomic<void*> known{nullptr};  \
    return next<decltype(name)>(known, #name); \
  }())

/// The argument behind the flags, where there is one.
#define MODE_OF(flags)                                              \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list more;                                                   \
    va_start(more, flags);                                          \
    mode = va_arg(more, mode_t);                                    \
    va_end(more);                                                   \
  }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return NEXT(open)(Seen(path).path(), flags, mode);
}

int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return NEXT(open64)(Seen(path).path(), flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return NEXT(openat)(folder, Seen(path).path(), flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return NEXT(openat64)(folder, Seen(path).path(), flags, mode);
}

FILE* fopen(const char* path, const char* mode) { return NEXT(fopen)(Seen(path).path(), mode); }

FILE* fopen64(const char* path, const char* mode) { return NEXT(fopen64)(Seen(path).path(), mode); }

DIR* opendir(const char* path) { return NEXT(opendir)(Seen(path).path()); }

int stat(const char* path, struct stat* status) noexcept { return NEXT(stat)(Seen(path).asked(), status); }

int stat64(const char* path, struct stat64* status) noexcept { return NEXT(stat64)(Seen(path).asked(), status); }

int lstat(const char* path, struct stat* status) noexcept { return NEXT(lstat)(Seen(path).path(), status); }

int lstat64(const char* path, struct stat64* status) noexcept { return NEXT(lstat64)(Seen(path).path(), status); }

int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  return NEXT(fstatat)(folder, Seen(path).path(), status, flags);
}

int fstatat64(int folder, const char* path, struct stat64* status, int flags) noexcept {
  return NEXT(fstatat64)(folder, Seen(path).path(), status, flags);
}

int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
  return NEXT(statx)(folder, Seen(path).path(), flags, mask, status);
}

int access(const char* path, int mode) noexcept { return NEXT(access)(Seen(path).asked(), mode); }

int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  return NEXT(faccessat)(folder, Seen(path).path(), mode, flags);
}

}  // extern "C"
