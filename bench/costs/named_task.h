#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>

/// What the programs for callgrind share: each measures one task, whose name is its argument.
namespace splitnic::bench {

/// So many messages of a task are measured, or a few less where its lists don't divide them.
inline constexpr std::size_t kMessages = 640;

/// main(): measure(task) does the work, and its result, how many messages were measured, is printed. Without an
/// argument all names are. What is open stays open: the process ends at once.
template <class Tasks, class Measure>
int run_named_task(const Tasks& tasks, int count, char** arguments, Measure&& measure) {
  for (const auto& task : tasks) {
    if (count != 2 || task.name != arguments[1]) continue;
    try {
      std::printf("%zu\n", static_cast<std::size_t>(measure(task)));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
      return EXIT_FAILURE;
    }
    std::fflush(stdout);
    std::_Exit(EXIT_SUCCESS);
  }
  for (const auto& task : tasks) std::printf("%.*s\n", static_cast<int>(task.name.size()), task.name.data());
  return count == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace splitnic::bench
