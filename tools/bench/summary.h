#pragma once

#include <vector>

namespace splitnic::tools::bench {

struct Summary {
  double min = 0;
  double median = 0;
  double max = 0;
};

/// values: at least one. The median of an even number is the mean of the middle two.
Summary summary_of(std::vector<double> values);

}  // namespace splitnic::tools::bench
