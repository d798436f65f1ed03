#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace splitnic::testing {

/// The letter of /proc that says what a process's first thread, or any other thread, does. S: it sleeps; ?: it is gone.
inline char state_of(pid_t thread) {
  std::ifstream stat("/proc/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  const auto end = line.rfind(')');
  return end == std::string::npos ? '?' : line.at(end + 2);
}

}  // namespace splitnic::testing
