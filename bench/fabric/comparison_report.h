#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "bench/fabric/comparison.h"

namespace splitnic::bench {

/// The medians of each placement, then the goals: which hold and which are missed.
std::string to_text(const Comparison& comparison);
boost::json::object to_json_object(const Comparison& comparison);
/// A picture: for each row and placement, where splitnic and its peers stand beside the row's reference.
std::string to_svg(const Comparison& comparison, const std::string& subtitle);

}  // namespace splitnic::bench
