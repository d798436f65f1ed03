#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/mac_address.h"
#include "common/result.h"

namespace splitnic::os {

/// The link-layer multicast addresses that the calling thread's network namespace has joined.
inline constexpr const char* kThreadDevMcast = "/proc/thread-self/net/dev_mcast";

/// The groups of one interface, sorted, without duplicates. text: lines "index name users global-users 01005e000001";
/// the parser skips other lines, and addresses of stations, which Linux permits in the list.
std::vector<MacAddress> parse_dev_mcast(std::string_view text, int interface_index);

/// Returns the text for parse_dev_mcast. descriptor: kThreadDevMcast, opened in the interface's namespace, which it
/// keeps showing. Error: the file can't be read.
Result<std::string> read_dev_mcast(int descriptor);

}  // namespace splitnic::os
