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

/// The verbs: protected memory and queue pairs for programs. See docs/verbs.md. Only the thread that owns the Context
/// may use them. Nothing blocks. An error of a peer or a caller is a status, never a crash.
namespace splitnic::verbs {

using fabric::AdapterCounters;
using fabric::AdapterLimits;
using fabric::Arm;
using fabric::AsyncEvent;
using fabric::AsyncEventKind;
using fabric::Completion;
using fabric::CompletionRoom;
using fabric::CompletionStatus;
using fabric::CqNumber;
using fabric::DomainRules;
using fabric::Gid;
using fabric::LocalSegment;
using fabric::MemoryRequestFailure;
using fabric::Operation;
using fabric::PageList;
using fabric::PathNumber;
using fabric::PortAddress;
using fabric::QpNumber;
using fabric::QueuePairState;
using fabric::ReceiveRequest;
using fabric::RemoteAddress;
using fabric::Right;
using fabric::Rights;
using fabric::RouteHeader;
using fabric::SrqNumber;
using fabric::Stag;
/// The result of a verb. bad_argument: also for a handle that is null, moved from, or of another context.
using fabric::Status;
using fabric::to_string;
using fabric::TouchControl;
using fabric::VirtualLane;
using fabric::WorkRequest;

/// A new object, or the reason why there is none.
template <class T>
using Expected = tl::expected<T, Status>;

/// The base of every handle: the only owner of an object, movable, null by default and when moved from. Destroying the
/// handle ends the object. An object that others were made with (a queue pair's domain and completion queues, a queue's
/// completion channel, the context) lives on internally until the last of them is destroyed. So handles may be
/// destroyed in any order. Only a path ends at once, with everything that used it. Thread: the context's owner.
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
  /// Only for the verbs themselves; null in a null handle.
  [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }

 protected:
  std::shared_ptr<Object> object_;
};

namespace detail {
struct ContextObject;
struct PathObject;
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
