#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"
#include "common/time.h"
#include "fabric/adapter/work.h"

namespace splitnic::fabric {

/// Which faults a run meets. Rates are permille; a number 0 means never. Source: docs/verbs-programs.md.
struct FaultSpecification {
  std::uint64_t seed = 0;
  unsigned drop_permille = 0;     ///< of the cells that requests send
  unsigned corrupt_permille = 0;  ///< of the messages that come in
  unsigned delay_permille = 0;    ///< of the requests
  Duration delay{};
  unsigned rnr_permille = 0;        ///< of the messages that take a receive
  unsigned duplicate_permille = 0;  ///< of the cells that requests send
  unsigned lost_ack_permille = 0;   ///< of the acknowledgements of requests, and their answers
  std::uint64_t kill_peer = 0;      ///< the number of the request, from 1 on, at which its queue pair's peer dies
  std::uint64_t cq_error = 0;       ///< likewise, at which the request ends with cq_status
  CompletionStatus cq_status = CompletionStatus::success;
};

/// The environment variables of the verbs library: a specification, and the file for the log (unset: standard error).
inline constexpr const char* kFaultsVariable = "SPLITNIC_FAULTS";
inline constexpr const char* kFaultsLogVariable = "SPLITNIC_FAULTS_LOG";

/// SEED[,drop=PERMILLE][,corrupt=PERMILLE][,delay=PERMILLE:MICROSECONDS][,rnr=PERMILLE][,kill-peer=REQUEST]
/// [,cq-error=STATUS:REQUEST][,duplicate=PERMILLE][,lost-ack=PERMILLE], in any order behind the seed. A seed alone: a
/// mix that reliable connections repair. Errors: names the word and what it should be.
[[nodiscard]] Result<FaultSpecification> parse_faults(std::string_view text);

/// As in a specification; for statuses that it may name.
[[nodiscard]] std::string_view name_of(CompletionStatus status);

}  // namespace splitnic::fabric
