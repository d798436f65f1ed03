#pragma once

#include <functional>
#include <memory>

#include "common/result.h"
#include "fabric/faults/fault_plan.h"

namespace splitnic::ibverbs {

/// The faults that the environment asks for (kFaultsVariable, kFaultsLogVariable), for a device that is being opened;
/// null: none. Opens the log. device, kill_peer: as in FaultPlanOptions. Errors: a wrong specification, no log.
[[nodiscard]] Result<std::unique_ptr<fabric::FaultPlan>> faults_of_environment(
    unsigned device, std::function<bool(fabric::PathNumber)> kill_peer);

}  // namespace splitnic::ibverbs
