#include "tools/bench/summary.h"

#include <algorithm>

#include "common/check.h"

namespace splitnic::tools::bench {

Summary summary_of(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

}  // namespace splitnic::tools::bench
