// A library for LD_PRELOAD. UCX uses a device only if /dev/infiniband has a character device with its name, which it
// may read and write; it never opens it. Only the kernel could make this file. So programs that ask for it, by one of
// these functions, are told of /dev/null; every other path is passed on.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "fabric/ibverbs/names.h"

namespace {

constexpr char kFolder[] = "/dev/infiniband/";

/// A null pointer stays one: the kernel refuses it.
const char* seen(const char* path) {
  if (path == nullptr || std::strncmp(path, kFolder, sizeof kFolder - 1) != 0) return path;
  return std::strcmp(path + sizeof kFolder - 1, splitnic::ibverbs::kDeviceFile) == 0 ? "/dev/null" : path;
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* status) noexcept { return fstatat(AT_FDCWD, seen(path), status, 0); }

int stat64(const char* path, struct stat64* status) noexcept { return fstatat64(AT_FDCWD, seen(path), status, 0); }

int access(const char* path, int mode) noexcept { return faccessat(AT_FDCWD, seen(path), mode, 0); }

}  // extern "C"
