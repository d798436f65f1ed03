#pragma once

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

namespace splitnic::fabric::test {

/// The mappings that this process has of the memory of bridges.
struct BridgeMappings {
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::size_t present = 0;  ///< bytes that are mapped, so that an access does not fault
};

inline BridgeMappings bridge_mappings() {
  BridgeMappings found;
  std::ifstream maps("/proc/self/smaps");
  bool of_bridge = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first;
    std::size_t kilobytes = 0;
    words >> first >> kilobytes;
    if (!first.ends_with(':')) {
      of_bridge = line.find("memfd:splitnic-bridge") != std::string::npos;
      if (of_bridge) ++found.count;
    } else if (of_bridge && first == "Size:") {
      found.bytes += kilobytes << 10U;
    } else if (of_bridge && first == "Rss:") {
      found.present += kilobytes << 10U;
    }
  }
  return found;
}

}  // namespace splitnic::fabric::test
