// Runs a fuzz target on files, or on all files of folders: replays what a fuzzer found, with any compiler. Also tries a
// few inputs of its own, so that a target without seeds is run at all.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "common/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::vector<char>& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

void run_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  run(std::vector<char>(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int index = 1; index < argc; ++index) {
    if (std::filesystem::is_directory(argv[index])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[index])) {
        run_file(entry.path());
        ++files;
      }
    } else if (std::filesystem::exists(argv[index])) {
      run_file(argv[index]);
      ++files;
    }
  }
  splitnic::SeededRandom random(1);
  constexpr std::size_t kOwnInputs = 2000;
  for (std::size_t count = 0; count < kOwnInputs; ++count) {
    std::vector<char> input(random.below(300));
    for (auto& byte : input) byte = static_cast<char>(random.below(4) == 0 ? random.next() : random.below(3));
    run(input);
  }
  std::printf("%zu files and %zu random inputs run\n", files, kOwnInputs);
}
