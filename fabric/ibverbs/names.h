#pragma once

namespace splitnic::ibverbs {

inline constexpr const char* kDeviceName = "splitnic0";
/// What the kernel would call the device's file in /dev/infiniband.
inline constexpr const char* kDeviceFile = "uverbs_splitnic0";

}  // namespace splitnic::ibverbs
