// `splitnic verbs-run`: an unmodified program for RDMA verbs, with the fabric's libibverbs in place of the system's.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/random.h"
#include "common/result.h"
#include "fabric/endnode/endnode.h"
#include "fabric/endnode/fabric_directory.h"
#include "fabric/endnode/local_ids.h"
#include "tools/commands.h"

namespace splitnic::tools {
namespace {

namespace fs = std::filesystem;
constexpr int kNotRun = 127;  // as shells have it

/// The folder of libibverbs.so.1: where the packages put it, or in the build tree. Empty: it is in neither.
fs::path library_folder() {
  std::error_code none;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", none).parent_path().parent_path();
  for (const char* libraries : {SPLITNIC_LIBDIR, "lib"}) {
    fs::path folder = prefix / libraries / "splitnic";
    if (fs::exists(folder / "libibverbs.so.1", none)) return folder;
  }
  return {};
}

std::string fabric_directory(const VerbsRunCommand& command) {
  auto directory = fabric::make_fabric_directory(command.fabric);
  if (!directory) throw StartupError{directory.error().message};
  return *directory;
}

int list(const VerbsRunCommand& command) {
  auto ids = fabric::LocalIds::open(fabric_directory(command));
  if (!ids) throw StartupError{ids.error().message};
  for (const auto& holder : (*ids)->holders()) {
    std::error_code none;
    const fs::path program = fs::read_symlink("/proc/" + std::to_string(holder.pid) + "/exe", none);
    std::printf("LID %5u  process %d  %s\n", unsigned{holder.id.value}, static_cast<int>(holder.pid),
                none ? "?" : program.c_str());
  }
  return 0;
}

/// A line for each thing that a program needs; 1 if one of them is not there.
int check(const VerbsRunCommand& command) {
  const fs::path folder = library_folder();
  std::printf("library: %s\n", folder.empty() ? "not found beside this program" : (folder / "libibverbs.so.1").c_str());
  const std::string directory = fabric_directory(command);
  std::printf("fabric: %s\n", directory.c_str());
  SystemRandom random;
  fabric::EndnodeOptions options;
  options.directory = directory;
  const auto endnode = fabric::Endnode::open(std::move(options), random);
  if (!endnode) {
    std::printf("endnode: %s\n", endnode.error().message.c_str());
  } else {
    std::printf("endnode: LID %u was free\n", unsigned{(*endnode)->local_id().value});
  }
  return folder.empty() || !endnode ? 1 : 0;
}

}  // namespace

int run_verbs_program(const VerbsRunCommand& command) {
  if (command.check) return check(command);
  if (command.list) return list(command);
  if (command.program.empty()) throw UsageError{"verbs-run needs a program to run (see --help)"};
  const fs::path folder = library_folder();
  if (folder.empty()) throw StartupError{"libibverbs.so.1 of splitnic is not installed beside this program"};
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string path = folder.string() + (before != nullptr && *before != 0 ? ":" + std::string(before) : "");
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  setenv("SPLITNIC_FABRIC", command.fabric.c_str(), 1);
  std::vector<char*> words;
  std::vector<std::string> copies = command.program;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  std::fprintf(stderr, "splitnic: %s: %s\n", words.front(), std::strerror(errno));
  return kNotRun;
}

}  // namespace splitnic::tools
