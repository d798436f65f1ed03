#pragma once

#include <string_view>
#include <vector>

#include "common/os/daemon_status.h"

namespace splitnic::tools {

inline constexpr std::string_view kVerbsRole = "verbs";

/// The open devices of this user's verbs programs on all fabrics, in the form of daemons. Their peers are queue pairs.
/// tx_frames counts completed requests, rx_frames receives that were taken.
[[nodiscard]] std::vector<os::DaemonStatus> verbs_endnodes();

}  // namespace splitnic::tools
