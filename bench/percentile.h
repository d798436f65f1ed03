#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace splitnic::bench {

/// The smallest of the values that so many percent of them don't exceed. values: at least one; reordered. percent: 1 to
/// 100.
inline double percentile(std::vector<double>& values, std::size_t percent) {
  const std::size_t rank = (values.size() * percent + 99) / 100;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace splitnic::bench
