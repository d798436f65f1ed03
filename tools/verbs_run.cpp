// `splitnic verbs-run`: an unmodified program for RDMA verbs, with the fabric's libibverbs and librdmacm in place of
// the system's.
#include <grp.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/os/errno_text.h"
#include "common/random.h"
#include "common/result.h"
#include "fabric/endnode/endnode.h"
#include "fabric/endnode/fabric_directory.h"
#include "fabric/endnode/local_ids.h"
#include "fabric/faults/fault_specification.h"
#include "tools/commands.h"
#include "tools/main_program.h"

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

/// For UCX: the device's file. Empty: it is not beside the library.
fs::path preloaded(const fs::path& folder) {
  std::error_code none;
  const fs::path library = folder / "libsplitnic-uverbs.so";
  return fs::exists(library, none) ? library : fs::path();
}

/// The dynamic linker separates the folders of LD_LIBRARY_PATH by these characters.
Result<void> check_for_linker(const fs::path& folder) {
  if (folder.string().find_first_of(":;") == std::string::npos) return {};
  return fail("{}: the dynamic linker takes no folder with ':' or ';' in its path", folder.string());
}

/// For LD_PRELOAD, whose list is also separated by blanks: there the linker finds a name in LD_LIBRARY_PATH, unless the
/// program changes that.
std::string preload_word(const fs::path& library) {
  return library.string().find(' ') == std::string::npos ? library.string() : library.filename().string();
}

/// Puts `first` in front of the variable's list, which is separated by colons.
void put_in_front(const char* variable, const std::string& first) {
  const char* before = std::getenv(variable);
  setenv(variable, before != nullptr && *before != 0 ? (first + ":" + before).c_str() : first.c_str(), 1);
}

/// AddressSanitizer refuses to start a program that has a preloaded library in front of the sanitizer's own. That is
/// meant for libraries that allocate before it is ready, which this one does not.
void permit_preloading_with_sanitizer() {
  constexpr const char* kVariable = "ASAN_OPTIONS";
  constexpr const char* kOption = "verify_asan_link_order";
  const char* before = std::getenv(kVariable);
  const std::string options = before != nullptr ? before : "";
  if (options.find(kOption) != std::string::npos) return;  // the user knows better
  setenv(kVariable, ((options.empty() ? "" : options + ":") + kOption + "=0").c_str(), 1);
}

fabric::FabricFolders fabric_folders(const VerbsRunCommand& command) {
  auto folders = fabric::fabric_folders(command.fabric);
  if (!folders) throw StartupError{folders.error().message};
  return *folders;
}

/// For a group: by name or number.
int share(const VerbsRunCommand& command) {
  gid_t group = 0;
  const auto [end, failed] =
      std::from_chars(command.share_with.data(), command.share_with.data() + command.share_with.size(), group);
  if (failed != std::errc() || *end != 0) {
    const struct group* named = ::getgrnam(command.share_with.c_str());
    if (named == nullptr) throw UsageError{"--share-with: there is no group " + command.share_with};
    group = named->gr_gid;
  }
  const auto folder = fabric::share_fabric(command.fabric, group);
  if (!folder) throw StartupError{folder.error().message};
  std::printf("fabric: %s, shared by group %u\n", folder->c_str(), unsigned{group});
  return 0;
}

int list(const VerbsRunCommand& command) {
  auto ids = fabric::LocalIds::open(fabric_folders(command).meeting);
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
  const auto taken = check_for_linker(folder);
  std::printf("library: %s\n", folder.empty() ? "not found beside this program"
                               : taken        ? (folder / "libibverbs.so.1").c_str()
                                              : taken.error().message.c_str());
  const fs::path manager = folder / "librdmacm.so.1";
  std::error_code none;
  const bool manages = !folder.empty() && fs::exists(manager, none);
  std::printf("connection manager: %s\n", manages ? manager.c_str() : "not found beside this program");
  const fs::path device_file = preloaded(folder);
  std::printf("device file for UCX: %s\n", device_file.empty() ? "not found beside the library" : device_file.c_str());
  const fabric::FabricFolders folders = fabric_folders(command);
  std::printf("fabric: %s\n", folders.meeting.c_str());
  if (folders.own != folders.meeting) std::printf("own folder of the fabric: %s\n", folders.own.c_str());
  SystemRandom random;
  fabric::EndnodeOptions options;
  options.directory = folders.meeting;
  options.own_directory = folders.own;
  const auto endnode = fabric::Endnode::open(std::move(options), random);
  if (!endnode) {
    std::printf("endnode: %s\n", endnode.error().message.c_str());
  } else {
    std::printf("endnode: LID %u was free\n", unsigned{(*endnode)->local_id().value});
  }
  return folder.empty() || !taken || !manages || device_file.empty() || !endnode ? 1 : 0;
}

/// For the program's library, which reads it when the program opens a device.
void set_faults(const VerbsRunCommand& command) {
  if (!command.faults.empty()) {
    const auto faults = fabric::parse_faults(command.faults);
    if (!faults) throw UsageError{faults.error().message};
    setenv(fabric::kFaultsVariable, command.faults.c_str(), 1);
  }
  if (command.faults_log.empty()) return;
  const char* set = std::getenv(fabric::kFaultsVariable);
  if (set == nullptr || *set == '\0') throw UsageError{"--faults-log needs --faults (see --help)"};
  // The program may work in another folder.
  setenv(fabric::kFaultsLogVariable, fs::absolute(command.faults_log).c_str(), 1);
}

}  // namespace

int run_verbs_program(const VerbsRunCommand& command) {
  const bool runs_none = command.check || command.list || !command.share_with.empty();
  if (runs_none && !command.program.empty()) {
    throw UsageError{"--check, --list and --share-with run no program (see --help)"};
  }
  if (command.check) return check(command);
  if (command.list) return list(command);
  if (!command.share_with.empty()) return share(command);
  if (command.program.empty()) throw UsageError{"verbs-run needs a program to run (see --help)"};
  const fs::path folder = library_folder();
  if (folder.empty()) throw StartupError{"libibverbs.so.1 of splitnic is not installed beside this program"};
  if (const auto taken = check_for_linker(folder); !taken) throw StartupError{taken.error().message};
  put_in_front("LD_LIBRARY_PATH", folder.string());
  if (const fs::path library = preloaded(folder); !library.empty()) {
    put_in_front("LD_PRELOAD", preload_word(library));
    permit_preloading_with_sanitizer();
  }
  setenv("SPLITNIC_FABRIC", command.fabric.c_str(), 1);
  if (const auto folders = fabric::fabric_folders(command.fabric)) {  // else opening the device says why
    setenv("SPLITNIC_SYSFS", (folders->own + "/sysfs").c_str(), 1);
  }
  setenv("SPLITNIC_PLACEMENT", command.placement.c_str(), 1);
  set_faults(command);
  std::vector<char*> words;
  std::vector<std::string> copies = command.program;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words.front(), words.data());
  print_error("splitnic", fmt::format("{}: {}", words.front(), os::errno_text()));
  return kNotRun;
}

}  // namespace splitnic::tools
