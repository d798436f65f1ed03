#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

/// What the programs for callgrind share: each measures the tasks whose names are its arguments.
namespace splitnic::bench {

/// So many messages of a task are measured, or a few less where its lists don't divide them: what MESSAGES of the
/// environment says, or 640. Throws std::invalid_argument.
inline std::size_t messages_to_measure() {
  const char* const said = std::getenv("MESSAGES");
  if (said == nullptr) return 640;
  char* end = nullptr;
  const std::size_t messages = std::strtoul(said, &end, 10);
  if (messages == 0 || *end != '\0') throw std::invalid_argument("MESSAGES is not a number above 0");
  return messages;
}

/// A tracer knows the end of a measurement by it.
extern "C" [[gnu::noinline]] inline void measurement_ended() { asm volatile(""); }

/// main(): for each argument, measure(task of that name) does the work, and its result, how many messages were
/// measured, is printed. Without arguments the names of all are. What is open stays open: the process ends at once.
template <class Tasks, class Measure>
int run_named_tasks(const Tasks& tasks, int count, char** arguments, Measure&& measure) {
  if (count == 1) {
    for (const auto& task : tasks) std::printf("%.*s\n", static_cast<int>(task.name.size()), task.name.data());
  }
  for (int i = 1; i < count; ++i) {
    const auto task =
        std::ranges::find(tasks, std::string_view(arguments[i]), [](const auto& one) { return one.name; });
    if (task == tasks.end()) {
      std::fprintf(stderr, "%s: no task is called %s\n", arguments[0], arguments[i]);
      return EXIT_FAILURE;
    }
    try {
      const std::size_t messages = measure(*task);
      measurement_ended();
      std::printf("%zu\n", messages);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
      return EXIT_FAILURE;
    }
  }
  std::fflush(stdout);
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace splitnic::bench
