#include "bench/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "common/check.h"

namespace splitnic::bench {

Summary summary_of(std::vector<double> values) {
  SPLITNIC_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

std::string to_text(const Summary& summary, int decimals) {
  return fmt::format("{:.{}f} ({:.{}f} .. {:.{}f})", summary.median, decimals, summary.min, decimals, summary.max,
                     decimals);
}

boost::json::object to_json_object(const std::vector<double>& values) {
  const Summary summary = summary_of(values);
  boost::json::object object;
  object["median"] = summary.median;
  object["min"] = summary.min;
  object["max"] = summary.max;
  object["runs"] = boost::json::array(values.begin(), values.end());
  return object;
}

}  // namespace splitnic::bench
