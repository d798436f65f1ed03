#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

namespace splitnic::bench {

struct Summary {
  double min = 0;
  double median = 0;
  double max = 0;
};

/// values: at least one. The median of an even number is the mean of the middle two.
Summary summary_of(std::vector<double> values);

/// "median (min .. max)".
std::string to_text(const Summary& summary, int decimals);
/// median, min, max, and every value as "runs". values: at least one.
boost::json::object to_json_object(const std::vector<double>& values);

}  // namespace splitnic::bench
