#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "fabric/adapter/adapter_options.h"
#include "fabric/endnode/counter_files.h"
#include "fabric/threads/shared_adapter.h"

namespace splitnic::ibverbs {

struct Context;

/// What an opened device counts, in the files of the fabric's folder (CounterFiles). The progress thread writes them
/// kIntervalMin after the last time if something has changed meanwhile, and up to kIntervalMax later if not. Thread:
/// the one that opens and closes the device.
class Counters {
 public:
  static constexpr Duration kIntervalMin = std::chrono::milliseconds(100);
  static constexpr Duration kIntervalMax = std::chrono::milliseconds(800);

  /// context: opened; outlives the object. Errors: no files, no timer.
  [[nodiscard]] static Result<std::unique_ptr<Counters>> open(Context& context);
  /// Adds the last counts to the sums of the fabric's device.
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

 private:
  Counters(Context& context, fabric::CounterFiles files, os::UniqueFd timer);
  /// True: something has changed.
  bool publish(bool last);
  void publish_in_time();
  void set_timer();
  [[nodiscard]] std::string queue_pairs();

  Context& context_;
  fabric::CounterFiles files_;
  os::UniqueFd timer_;
  fabric::WatchNumber watch_{};
  Duration interval_ = kIntervalMin;
  fabric::PortCounts before_;
  std::string lines_before_;
};

}  // namespace splitnic::ibverbs
