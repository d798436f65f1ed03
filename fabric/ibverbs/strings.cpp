// Names of enumerators, and rates as numbers.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace splitnic::ibverbs {
namespace {

template <std::size_t N>
const char* name_in(const std::array<const char*, N>& names, long index, const char* unknown) {
  return index >= 0 && index < static_cast<long>(N) ? names[static_cast<std::size_t>(index)] : unknown;
}

struct Rate {
  ibv_rate rate;
  int multiple;  ///< of 2.5 Gb/s; -1: none
  int megabits;
};
constexpr std::array kRates{
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},     Rate{IBV_RATE_5_GBPS, 2, 5000},         Rate{IBV_RATE_10_GBPS, 4, 10000},
    Rate{IBV_RATE_20_GBPS, 8, 20000},     Rate{IBV_RATE_30_GBPS, 12, 30000},      Rate{IBV_RATE_40_GBPS, 16, 40000},
    Rate{IBV_RATE_60_GBPS, 24, 60000},    Rate{IBV_RATE_80_GBPS, 32, 80000},      Rate{IBV_RATE_120_GBPS, 48, 120000},
    Rate{IBV_RATE_14_GBPS, 6, 14062},     Rate{IBV_RATE_56_GBPS, 22, 56250},      Rate{IBV_RATE_112_GBPS, 45, 112500},
    Rate{IBV_RATE_168_GBPS, 67, 168750},  Rate{IBV_RATE_25_GBPS, 10, 25781},      Rate{IBV_RATE_100_GBPS, 40, 103125},
    Rate{IBV_RATE_200_GBPS, 80, 206250},  Rate{IBV_RATE_300_GBPS, 120, 309375},   Rate{IBV_RATE_28_GBPS, 11, 28125},
    Rate{IBV_RATE_50_GBPS, 20, 53125},    Rate{IBV_RATE_400_GBPS, 160, 425000},   Rate{IBV_RATE_600_GBPS, 240, 637500},
    Rate{IBV_RATE_800_GBPS, 320, 850000}, Rate{IBV_RATE_1200_GBPS, 480, 1275000},
};

}  // namespace

extern "C" {

int ibv_rate_to_mult(ibv_rate rate) {
  const auto found = std::ranges::find(kRates, rate, &Rate::rate);
  return found == kRates.end() ? -1 : found->multiple;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  const auto found = std::ranges::find(kRates, multiple, &Rate::multiple);
  return found == kRates.end() ? IBV_RATE_MAX : found->rate;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  const auto found = std::ranges::find(kRates, rate, &Rate::rate);
  return found == kRates.end() ? -1 : found->megabits;
}

ibv_rate mbps_to_ibv_rate(int megabits) {
  const auto found = std::ranges::find(kRates, megabits, &Rate::megabits);
  return found == kRates.end() ? IBV_RATE_MAX : found->rate;
}

const char* ibv_node_type_str(ibv_node_type type) {
  static constexpr std::array kNames{"unknown",           "InfiniBand channel adapter",
                                     "InfiniBand switch", "InfiniBand router",
                                     "iWARP NIC",         "usNIC",
                                     "usNIC UDP",         "unspecified"};
  return type == IBV_NODE_UNKNOWN ? "unknown" : name_in(kNames, type, "unknown");
}

const char* ibv_port_state_str(ibv_port_state state) {
  static constexpr std::array kNames{"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
  return name_in(kNames, state, "invalid state");
}

const char* ibv_event_type_str(ibv_event_type event) {
  static constexpr std::array kNames{"CQ error",
                                     "local work queue catastrophic error",
                                     "invalid request local work queue error",
                                     "local access violation work queue error",
                                     "communication established",
                                     "send queue drained",
                                     "path migrated",
                                     "path migration request error",
                                     "local catastrophic error",
                                     "port active",
                                     "port error",
                                     "LID change",
                                     "P_Key change",
                                     "SM change",
                                     "SRQ catastrophic error",
                                     "SRQ limit reached",
                                     "last WQE reached",
                                     "client reregistration",
                                     "GID table change",
                                     "WQ fatal"};
  return name_in(kNames, event, "unknown");
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  static constexpr std::array kNames{"success",
                                     "local length error",
                                     "local QP operation error",
                                     "local EE context operation error",
                                     "local protection error",
                                     "Work Request Flushed Error",
                                     "memory management operation error",
                                     "bad response error",
                                     "local access error",
                                     "remote invalid request error",
                                     "remote access error",
                                     "remote operation error",
                                     "transport retry counter exceeded",
                                     "RNR retry counter exceeded",
                                     "local RDD violation error",
                                     "remote invalid RD request",
                                     "aborted error",
                                     "invalid EE context number",
                                     "invalid EE context state",
                                     "fatal error",
                                     "response timeout error",
                                     "general error",
                                     "TM error",
                                     "TM software rendezvous"};
  return name_in(kNames, status, "unknown");
}

/// Declared by the headers of rdma-core 49 and later.
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  static constexpr std::array kNames{"rdma-write",
                                     "rdma-write-with-imm",
                                     "send",
                                     "send-with-imm",
                                     "rdma-read",
                                     "atomic-cmp-and-swp",
                                     "atomic-fetch-and-add",
                                     "local-inv",
                                     "bind-mw",
                                     "send-with-inv",
                                     "tso",
                                     "driver1",
                                     "unknown",  // not assigned
                                     "unknown",
                                     "flush",
                                     "atomic-write"};
  return name_in(kNames, opcode, "unknown");
}

}  // extern "C"

}  // namespace splitnic::ibverbs
