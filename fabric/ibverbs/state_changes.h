#pragma once

#include <infiniband/verbs.h>

namespace splitnic::ibverbs {

/// 0 if ibv_modify_qp() may take a queue pair of this type from one state to the other with these attributes, or
/// EINVAL. mask: as ibv_modify_qp()'s, without IBV_QP_STATE counted. Source: InfiniBand 11.2.5.2; ibv_modify_qp(3).
[[nodiscard]] int check_state_change(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

/// Without those that queue pairs of the type have no use for, which programs may give all the same. As the kernel.
[[nodiscard]] int used_attributes(ibv_qp_type type, int mask);

}  // namespace splitnic::ibverbs
