#pragma once

#include <memory>
#include <tl/expected.hpp>
#include <utility>

#include "fabric/adapter/adapter_options.h"
#include "fabric/adapter/completion_channel.h"
#include "fabric/adapter/events.h"
#include "fabric/adapter/queue_pair_state.h"
#include "fabric/adapter/work.h"
#include "fabric/ids.h"
#include "fabric/memory/page_table.h"
#include "fabric/memory/protection_entry.h"

/// The verbs: protected memory and queue pairs for programs. See docs/verbs.md. Everything here belongs to the thread
/// that owns the Context; nothing blocks, and what a peer or a caller does wrong is answered with a status.
namespace splitnic::verbs {

using fabric::AdapterCounters;
using fabric::AdapterLimits;
using fabric::Arm;
using fabric::AsyncEvent;
using fabric::AsyncEventKind;
using fabric::Completion;
using fabric::CompletionStatus;
using fabric::CqNumber;
using fabric::DomainRules;
using fabric::LocalSegment;
using fabric::MemoryRequestFailure;
using fabric::Operation;
using fabric::PageList;
using fabric::PortAddress;
using fabric::QpNumber;
using fabric::QueuePairState;
using fabric::ReceiveRequest;
using fabric::RemoteAddress;
using fabric::Right;
using fabric::Rights;
using fabric::SrqNumber;
using fabric::Stag;
/// What a verb answers. bad_argument: also a handle that is null or moved from, or another context's.
using fabric::Status;
using fabric::to_string;
using fabric::TouchControl;
using fabric::VirtualLane;
using fabric::WorkRequest;

/// A new object, or why there is none.
template <class T>
using Expected = tl::expected<T, Status>;

/// What every handle is: the one owner of an object, movable, null by default and when moved from. To let go of a
/// handle ends what it names; what other objects were made with (a queue pair's domain and completion queues, a
/// queue's channel, everything's context) lives on underneath until the last of them is gone. So handles may go in any
/// order. Thread: the context's owner.
template <class Object>
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::shared_ptr<Object> object) : object_(std::move(object)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&&) noexcept = default;
  ~Handle() = default;

  [[nodiscard]] explicit operator bool() const { return object_ != nullptr; }
  /// For the verbs themselves; null in a null handle.
  [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }

 protected:
  std::shared_ptr<Object> object_;
};

namespace detail {
struct ContextObject;
struct DomainObject;
struct RegionObject;
struct WindowObject;
struct ChannelObject;
struct CompletionQueueObject;
struct SharedReceiveQueueObject;
struct QueuePairObject;
struct AddressObject;
}  // namespace detail

}  // namespace splitnic::verbs
