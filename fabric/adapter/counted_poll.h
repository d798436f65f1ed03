#pragma once

#include <cstdint>

namespace splitnic::fabric {

/// A poll of an adapter, as habits count it: times would be as coarse as the clock of who polls.
struct CountedPoll {
  std::uint64_t number = 0;  ///< from any start
  bool quick = false;        ///< it looks first at what has come in; within 4 us there is one that looks at everything
};

}  // namespace splitnic::fabric
