#pragma once

namespace splitnic::ibverbs {

inline constexpr const char* kDeviceName = "splitnic0";
/// What the kernel would call the device's file in /dev/infiniband.
inline constexpr const char* kDeviceFile = "uverbs_splitnic0";
/// The environment variable with the folder that stands for /sys (device_file/).
inline constexpr const char* kSysfsVariable = "SPLITNIC_SYSFS";

}  // namespace splitnic::ibverbs
