// What programs look for below /sys.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "common/os/unique_fd.h"
#include "fabric/endnode/fabric_directory.h"
#include "fabric/ibverbs/names.h"
#include "fabric/ibverbs/objects.h"
#include "fabric/threads/per_process.h"

namespace splitnic::ibverbs {
namespace {

constexpr const char* kSysfs = "/sys";

/// The kernel has no folder for a device that is not its own, and Open MPI uses verbs only if class/infiniband is a
/// folder. So there is one in this user's folder of the fabric.
std::string make_tree() {
  const auto folders = fabric::chosen_fabric_folders();
  if (!folders) return kSysfs;  // opening the device says why
  const std::filesystem::path tree = std::filesystem::path(folders->own) / "sysfs";
  std::error_code failed;
  std::filesystem::create_directories(tree / "class/infiniband" / kDeviceName, failed);
  return failed ? kSysfs : tree.string();
}

struct Tree {
  const std::string path = make_tree();
};

int read_text_file(const std::string& path, char* text, std::size_t bytes) {
  const os::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || bytes == 0) return -1;
  const ssize_t got = read(file.get(), text, bytes);
  if (got <= 0) return -1;
  const auto end = static_cast<std::size_t>(got);
  if (text[end - 1] == '\n') {
    text[end - 1] = 0;
    return static_cast<int>(got - 1);
  }
  if (end < bytes) text[end] = 0;
  return static_cast<int>(got);
}

}  // namespace

extern "C" {

const char* ibv_get_sysfs_path() {
  return creating([]() -> const char* {
    static constinit fabric::PerProcess<Tree> tree;
    return tree.get().path.c_str();
  });
}

int ibv_read_sysfs_file(const char* directory, const char* file, char* text, size_t bytes) {
  int got = -1;
  const int failed = answering([&] {
    got = read_text_file(std::string(directory) + "/" + file, text, bytes);
    return 0;
  });
  if (failed != 0) errno = failed;
  return got;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
