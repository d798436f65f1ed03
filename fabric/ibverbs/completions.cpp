// Completion channels and completion queues.
#include "fabric/ibverbs/objects.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;
using fabric::Completion;
using fabric::CompletionStatus;
using fabric::Operation;

ibv_wc_status status_of(CompletionStatus status, Operation operation) {
  switch (status) {
    case CompletionStatus::success:
      return IBV_WC_SUCCESS;
    case CompletionStatus::local_length_error:
      return IBV_WC_LOC_LEN_ERR;
    case CompletionStatus::local_protection_error:
      return IBV_WC_LOC_PROT_ERR;
    case CompletionStatus::remote_access_error:
      return IBV_WC_REM_ACCESS_ERR;
    case CompletionStatus::remote_operation_error:
      return IBV_WC_REM_OP_ERR;
    case CompletionStatus::receiver_not_ready:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case CompletionStatus::retry_exceeded:
    case CompletionStatus::outcome_unknown:
      return IBV_WC_RETRY_EXC_ERR;
    case CompletionStatus::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case CompletionStatus::memory_request_error:
      return operation == Operation::bind_window ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_QP_OP_ERR;
    case CompletionStatus::remote_invalid_request_error:
      return IBV_WC_REM_INV_REQ_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode opcode_of(const Completion& completion) {
  if (completion.receive) {
    const bool write = completion.operation == Operation::rdma_write_with_immediate;
    return write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  }
  switch (completion.operation) {
    case Operation::rdma_write:
    case Operation::rdma_write_with_immediate:
      return IBV_WC_RDMA_WRITE;
    case Operation::rdma_read:
      return IBV_WC_RDMA_READ;
    case Operation::compare_swap:
      return IBV_WC_COMP_SWAP;
    case Operation::fetch_add:
      return IBV_WC_FETCH_ADD;
    case Operation::bind_window:
      return IBV_WC_BIND_MW;
    case Operation::local_invalidate:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

/// A peer's death ends every request that had begun with an unknown outcome. The oldest one of a queue pair reports it;
/// those after it are flushed, as after any failure.
ibv_wc_status status_after_death(Context& context, const Completion& completion) {
  const std::lock_guard guard(context.lock);
  const auto found = context.objects.queue_pairs.find(completion.queue_pair.value);
  if (found == context.objects.queue_pairs.end()) return IBV_WC_WR_FLUSH_ERR;
  return std::exchange(found->second->connection->death_reported, true) ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
}

/// Room for completions. Nothing fills it beforehand: most polls find none.
union CompletionRoom {
  CompletionRoom() {}  // NOLINT(modernize-use-equals-default): that would be deleted
  std::array<Completion, 16> all;
};
static_assert(std::is_trivially_copyable_v<Completion>);

int poll_cq(ibv_cq* cq, int most, ibv_wc* wc) noexcept {
  Context& context = Context::of(cq->context);
  const fabric::CqNumber number = CompletionQueue::of(cq).number;
  CompletionRoom room_for_some;
  const std::span some(room_for_some.all);
  int count = 0;
  bool goes_on = false;
  while (count < most) {
    const auto room = std::min(some.size(), static_cast<std::size_t>(most - count));
    const std::size_t got = context.adapter->poll_completions(number, some.first(room), goes_on);
    for (std::size_t i = 0; i < got; ++i) describe(context, some[i], wc[count++]);
    if (got < room) break;
    goes_on = some[got - 1].status != CompletionStatus::flushed;
  }
  return count;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept {
  if (cq->channel == nullptr) return 0;
  return code_of(Context::of(cq->context)
                     .adapter->arm(CompletionQueue::of(cq).number,
                                   solicited_only != 0 ? fabric::Arm::solicited : fabric::Arm::next));
}

/// Moderation is a hint, and every completion is reported at once.
int modify_cq(ibv_cq*, ibv_modify_cq_attr* attributes) noexcept {
  return (attributes->attr_mask & ~static_cast<std::uint32_t>(IBV_CQ_ATTR_MODERATE)) != 0 ? EINVAL : 0;
}

CompletionQueue* create_queue(ibv_context* device, std::int64_t entries, void* user, ibv_comp_channel* channel,
                              std::uint32_t vector) {
  Context& context = Context::of(device);
  const bool fits = entries > 0 && entries <= kMaxCompletions &&
                    vector < static_cast<std::uint32_t>(device->num_comp_vectors) &&
                    (channel == nullptr || channel->context == device);
  if (!fits) return refuse<CompletionQueue>(EINVAL);
  auto queue = std::make_unique<CompletionQueue>();
  const auto reports_to = channel != nullptr ? Channel::of(channel).number : fabric::ChannelNumber{};
  const auto made = context.adapter->use([&](ChannelAdapter& adapter) {
    return adapter.make_completion_queue(static_cast<std::size_t>(entries), reports_to,
                                         fabric::CompletionRoom::unreserved);
  });
  if (!made) return refuse<CompletionQueue>(ENOMEM);
  queue->number = *made;
  ibv_cq_ex& cq = queue->cq;
  cq.context = device;
  cq.channel = channel;
  cq.cq_context = user;
  cq.handle = context.next_handle();
  cq.cqe = static_cast<int>(entries);
  pthread_mutex_init(&cq.mutex, nullptr);
  pthread_cond_init(&cq.cond, nullptr);
  const std::lock_guard guard(context.lock);
  if (channel != nullptr) ++channel->refcnt;
  context.objects.completion_queues.emplace(made->value, queue.get());
  return queue.release();
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept {
  constexpr std::uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  constexpr std::uint64_t kFields = static_cast<std::uint64_t>(IBV_WC_STANDARD_FLAGS) |
                                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  const bool has_flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  const bool known = (attributes->comp_mask & ~kKnown) == 0 && (attributes->wc_flags & ~kFields) == 0 &&
                     (!has_flags || (attributes->flags & ~kFlags) == 0);
  if (!known) return refuse<ibv_cq_ex>(EOPNOTSUPP);
  return creating([&]() -> ibv_cq_ex* {
    CompletionQueue* queue =
        create_queue(context, attributes->cqe, attributes->cq_context, attributes->channel, attributes->comp_vector);
    if (queue == nullptr) return nullptr;
    const bool single_threaded = has_flags && (attributes->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    set_extended_polling(*queue, attributes->wc_flags, single_threaded);
    return &queue->cq;
  });
}

}  // namespace

void describe(Context& context, const Completion& completion, ibv_wc& wc) {
  wc = {};
  wc.wr_id = completion.id;
  wc.qp_num = completion.queue_pair.value;
  wc.opcode = opcode_of(completion);
  wc.status = IBV_WC_SUCCESS;
  if (completion.status != CompletionStatus::success) {
    wc.status = status_of(completion.status, completion.operation);
    wc.vendor_err = static_cast<std::uint32_t>(completion.status);
    if (completion.status == CompletionStatus::outcome_unknown) wc.status = status_after_death(context, completion);
    return;
  }
  wc.byte_len = completion.bytes;
  if (completion.has_immediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = completion.immediate;
  } else if (completion.has_invalidated) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = completion.tag.value;
  }
  if (completion.has_route) {
    wc.wc_flags |= IBV_WC_GRH;
    wc.src_qp = completion.source.value;
    wc.slid = context.peers->local_id_of(completion.path);
  }
}

int error_number(fabric::Status status) {
  switch (status) {
    case fabric::Status::ok:
      return 0;
    case fabric::Status::queue_full:
    case fabric::Status::no_resources:
      return ENOMEM;
    case fabric::Status::in_use:
      return EBUSY;
    default:
      return EINVAL;
  }
}

void set_completion_verbs(Context& context) {
  context.verbs.context.ops.poll_cq = poll_cq;
  context.verbs.context.ops.req_notify_cq = req_notify_cq;
  context.verbs.modify_cq = modify_cq;
  context.verbs.create_cq_ex = create_cq_ex;
}

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* device) {
  return creating([&]() -> ibv_comp_channel* {
    Context& context = Context::of(device);
    auto channel = std::make_unique<Channel>();
    const auto made = context.adapter->create_completion_channel();
    if (!made) return refuse<ibv_comp_channel>(ENOMEM);
    channel->number = *made;
    channel->channel = {device, context.adapter->channel_descriptor(*made), 0};
    return &channel.release()->channel;
  });
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  Context& context = Context::of(channel->context);
  {
    const std::lock_guard guard(context.lock);
    if (channel->refcnt != 0) return EBUSY;
  }
  const os::Uncancelled whole;
  const auto gone = context.adapter->destroy_completion_channel(Channel::of(channel).number);
  if (gone != fabric::Status::ok) return error_number(gone);
  delete &Channel::of(channel);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int vector) {
  return creating([&]() -> ibv_cq* {
    CompletionQueue* queue = create_queue(context, entries, user, channel, static_cast<std::uint32_t>(vector));
    return queue == nullptr ? nullptr : queue->base();
  });
}

int ibv_resize_cq(ibv_cq* cq, int entries) {
  if (entries <= 0 || entries > kMaxCompletions) return EINVAL;
  return answering([&] {
    const auto resized = Context::of(cq->context).adapter->use([&](ChannelAdapter& adapter) {
      return adapter.resize_completion_queue(CompletionQueue::of(cq).number, static_cast<std::size_t>(entries));
    });
    if (resized != fabric::Status::ok) return EINVAL;  // more completions wait
    cq->cqe = entries;
    return 0;
  });
}

int ibv_destroy_cq(ibv_cq* cq) {
  CompletionQueue& queue = CompletionQueue::of(cq);
  Context& context = Context::of(cq->context);
  {
    const std::lock_guard guard(context.lock);
    const auto channel = cq->channel != nullptr ? Channel::of(cq->channel).number : fabric::ChannelNumber{};
    const auto gone = context.adapter->destroy_completion_queue(queue.number, channel);
    if (gone != fabric::Status::ok) return error_number(gone);
    forget_destroyed(context, context.objects.completion_queues, queue.number.value, cq);
    if (cq->channel != nullptr) --cq->channel->refcnt;
  }
  await_acknowledgement(*cq, cq->comp_events_completed, queue.completions_reported);
  await_acknowledgement(*cq, cq->async_events_completed, queue.events_reported);
  delete &queue;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user) {
  Context& context = Context::of(channel->context);
  const fabric::ChannelNumber number = Channel::of(channel).number;
  for (;;) {
    {
      const std::lock_guard guard(context.lock);
      const auto notified = context.adapter->take_notification(number);
      const auto found =
          notified ? context.objects.completion_queues.find(notified->value) : context.objects.completion_queues.end();
      if (found != context.objects.completion_queues.end()) {
        ++found->second->completions_reported;
        *cq = found->second->base();
        *user = (*cq)->cq_context;
        return 0;
      }
    }
    if ((fcntl(channel->fd, F_GETFL) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    if (context.adapter->wait_notification(number) == fabric::Waited::interrupted) {
      errno = EINTR;
      return -1;
    }
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  if (count == 0) return;
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // extern "C"

}  // namespace splitnic::ibverbs
