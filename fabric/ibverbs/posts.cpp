// Send and receive requests.
#include <array>
#include <type_traits>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/requests.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;
using fabric::LocalSegment;
using fabric::Operation;
using fabric::WorkRequest;

std::optional<Operation> operation_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return Operation::rdma_write;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return Operation::rdma_write_with_immediate;
    case IBV_WR_SEND:
      return Operation::send;
    case IBV_WR_SEND_WITH_IMM:
      return Operation::send_with_immediate;
    case IBV_WR_RDMA_READ:
      return Operation::rdma_read;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return Operation::compare_swap;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return Operation::fetch_add;
    case IBV_WR_LOCAL_INV:
      return Operation::local_invalidate;
    case IBV_WR_BIND_MW:
      return Operation::bind_window;
    case IBV_WR_SEND_WITH_INV:
      return Operation::send_with_invalidate;
    default:
      return std::nullopt;
  }
}

/// The operation's own fields.
void fill_operation(const ibv_qp& qp, const ibv_send_wr& wr, WorkRequest& request, fabric::MemoryRequest& memory) {
  switch (request.operation) {
    case Operation::compare_swap:
    case Operation::fetch_add:
      request.remote = {wr.wr.atomic.remote_addr, fabric::Stag{wr.wr.atomic.rkey}};
      request.compare = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wr.wr.atomic.compare_add : 0;
      request.swap_or_add = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wr.wr.atomic.swap : wr.wr.atomic.compare_add;
      return;
    case Operation::local_invalidate:
    case Operation::send_with_invalidate:
      request.invalidate = fabric::Stag{wr.invalidate_rkey};
      return;
    case Operation::bind_window:
      memory = binding_of_type_2(Window::of(wr.bind_mw.mw), wr.bind_mw.rkey, wr.bind_mw.bind_info);
      request.memory = &memory;
      return;
    case Operation::send:
    case Operation::send_with_immediate:
      request.immediate = wr.imm_data;
      if (qp.qp_type == IBV_QPT_UD)
        request.datagram = target_of(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
      return;
    default:
      request.immediate = wr.imm_data;
      request.remote = {wr.wr.rdma.remote_addr, fabric::Stag{wr.wr.rdma.rkey}};
  }
}

int fill(const QueuePair& queue_pair, const ibv_send_wr& wr, WorkRequest& request, fabric::MemoryRequest& memory) {
  const auto operation = operation_of(wr.opcode);
  if (!operation) return EOPNOTSUPP;
  const ibv_qp& qp = queue_pair.qp.qp_base;
  if (wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
  request.id = wr.wr_id;
  request.operation = *operation;
  request.signalled = queue_pair.all_signalled || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  request.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  const bool moves = request.operation < Operation::bind_window;
  request.inline_data = moves && (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (moves) {
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > queue_pair.capabilities.max_send_sge) return EINVAL;
    const auto count =
        segments_of(std::span(wr.sg_list, static_cast<std::size_t>(wr.num_sge)), std::span(request.segments));
    if (count == kTooManySegments) return EINVAL;
    request.segment_count = count;
  }
  if (qp.qp_type == IBV_QPT_XRC_SEND) request.remote_receives = fabric::SrqNumber{wr.qp_type.xrc.remote_srqn};
  fill_operation(qp, wr, request, memory);
  return 0;
}

/// Before the adapter's lock is taken.
void make_ways(const ibv_send_wr* wr) {
  for (; wr != nullptr; wr = wr->next) {
    if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) make_way(wr->wr.ud.ah, wr->wr.ud.remote_qpn);
  }
}

/// Posts the list a few requests at a time, so that the peer begins before the last one is built. Under the adapter's
/// lock. wr: left at the first request that was not posted.
int post_list(ChannelAdapter& adapter, QueuePair& queue_pair, ibv_send_wr*& wr) {
  SendBatch& batch = *queue_pair.batch;
  int refused = 0;
  while (wr != nullptr && refused == 0) {
    std::size_t count = 0;
    for (const ibv_send_wr* next = wr; next != nullptr && count != batch.requests.size(); next = next->next) {
      refused = fill(queue_pair, *next, batch.blank(count), batch.memory[count]);
      if (refused != 0) break;
      ++count;
    }
    std::size_t posted = 0;
    const auto status = adapter.post_send(queue_pair.number, std::span(batch.requests).first(count), posted);
    if (status != fabric::Status::ok) refused = error_number(status);
    for (; posted != 0; --posted) wr = wr->next;
  }
  return refused;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
  QueuePair& queue_pair = QueuePair::of(qp);
  if (qp->qp_type == IBV_QPT_UD) make_ways(wr);
  const int refused = Context::of(qp->context).adapter->post([&](ChannelAdapter& adapter) {
    return post_list(adapter, queue_pair, wr);
  });
  if (refused != 0) *bad = wr;
  return refused;
}

/// Room for the segments of a receive. Nothing fills it beforehand: most have one.
union SegmentRoom {
  SegmentRoom() {}  // NOLINT(modernize-use-equals-default): that would be deleted
  std::array<LocalSegment, fabric::kMaxSegments> all;
};
static_assert(std::is_trivially_copyable_v<LocalSegment>);

/// Posts a list of receives: post(adapter, request) one of them.
template <class Post>
int post_receives(Context& context, std::uint32_t most_segments, ibv_recv_wr* wr, ibv_recv_wr** bad, Post&& post) {
  return context.adapter->post([&](ChannelAdapter& adapter) {
    SegmentRoom room;
    const std::span segments(room.all);
    for (; wr != nullptr; wr = wr->next) {
      const bool fits = wr->num_sge >= 0 && static_cast<std::uint32_t>(wr->num_sge) <= most_segments;
      const auto count = fits ? segments_of(std::span(wr->sg_list, static_cast<std::size_t>(wr->num_sge)), segments)
                              : kTooManySegments;
      int refused = EINVAL;
      if (count != kTooManySegments) {
        fabric::ReceiveRequest request;
        request.id = wr->wr_id;
        if (count != 0) {
          request.segment.address = segments[0].address;
          request.segment.bytes = segments[0].bytes;
          request.segment.tag = segments[0].tag;
          request.more = segments.subspan(1, count - 1);
        }
        refused = code_of(post(adapter, request));
      }
      if (refused != 0) {
        *bad = wr;
        return refused;
      }
    }
    return 0;
  });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  QueuePair& queue_pair = QueuePair::of(qp);
  if (qp->state == IBV_QPS_RESET) {
    *bad = wr;
    return EINVAL;
  }
  return post_receives(Context::of(qp->context), queue_pair.capabilities.max_recv_sge, wr, bad,
                       [&](ChannelAdapter& adapter, const fabric::ReceiveRequest& request) {
                         return adapter.post_receive(queue_pair.number, request);
                       });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  SharedReceives& receives = SharedReceives::of(srq);
  return post_receives(Context::of(srq->context), receives.attributes.max_sge, wr, bad,
                       [&](ChannelAdapter& adapter, const fabric::ReceiveRequest& request) {
                         return adapter.post_shared_receive(receives.number, request);
                       });
}

}  // namespace

std::size_t segments_of(std::span<const ibv_sge> list, std::span<LocalSegment> segments) {
  std::size_t count = 0;
  for (const ibv_sge& part : list) {
    if (part.length == 0) continue;
    if (count == segments.size()) return kTooManySegments;
    segments[count++] = LocalSegment::at(part.addr, part.length, fabric::Stag{part.lkey});
  }
  return count;
}

void set_post_verbs(Context& context) {
  context.verbs.context.ops.post_send = post_send;
  context.verbs.context.ops.post_recv = post_recv;
  context.verbs.context.ops.post_srq_recv = post_srq_recv;
}

}  // namespace splitnic::ibverbs
