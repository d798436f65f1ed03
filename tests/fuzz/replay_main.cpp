// Runs a fuzz target on files, or on all files of folders: replays what a fuzzer found, with any compiler. Also tries a
// few inputs of its own, so that a target without seeds is run at all. Fails if no session comes up with a file that is
// named up-... (came_up.h).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/fuzz/came_up.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::vector<char>& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

/// False: its name says that a session comes up, and none did.
bool run_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  run(std::vector<char>(std::istreambuf_iterator<char>(file), {}));
  if (!path.filename().string().starts_with("up-")) return true;
  if (&splitnic_fuzz_came_up != nullptr && splitnic_fuzz_came_up()) return true;
  std::fprintf(stderr, "%s: no session came up\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  bool good = true;
  for (int index = 1; index < argc; ++index) {
    if (std::filesystem::is_directory(argv[index])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[index])) {
        good = run_file(entry.path()) && good;
        ++files;
      }
    } else if (std::filesystem::exists(argv[index])) {
      good = run_file(argv[index]) && good;
      ++files;
    }
  }
  splitnic::SeededRandom random(1);
  // An attack on a session takes milliseconds.
  const std::size_t own_inputs = &splitnic_fuzz_came_up != nullptr ? 50 : 2000;
  for (std::size_t count = 0; count < own_inputs; ++count) {
    std::vector<char> input(random.below(300));
    for (auto& byte : input) byte = static_cast<char>(random.below(4) == 0 ? random.next() : random.below(3));
    run(input);
  }
  std::printf("%zu files and %zu random inputs run\n", files, own_inputs);
  return good ? 0 : 1;
}
