// Extended completion queues: polling that reads each field on demand.
#include <ctime>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

ibv_wc& current(ibv_cq_ex* cq) { return CompletionQueue::of(cq).current_wc; }

std::uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// ENOENT: there is none.
int take(ibv_cq_ex* cq, bool goes_on) {
  CompletionQueue& queue = CompletionQueue::of(cq);
  Context& context = Context::of(cq->context);
  if (context.adapter->poll_completions(queue.number, std::span(&queue.current, 1), goes_on) == 0) return ENOENT;
  describe(context, queue.current, queue.current_wc);
  cq->wr_id = queue.current_wc.wr_id;
  cq->status = queue.current_wc.status;
  return 0;
}

int next(ibv_cq_ex* cq) noexcept {
  return take(cq, CompletionQueue::of(cq).current.status != fabric::CompletionStatus::flushed);
}

/// The caller ends with end_poll() only if this succeeds.
int start(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) noexcept {
  if (attributes->comp_mask != 0) return EINVAL;
  CompletionQueue& queue = CompletionQueue::of(cq);
  queue.poll_lock->lock();
  const int none = take(cq, false);
  if (none != 0) queue.poll_lock->unlock();
  return none;
}

void end(ibv_cq_ex* cq) noexcept { CompletionQueue::of(cq).poll_lock->unlock(); }

}  // namespace

void set_extended_polling(CompletionQueue& queue, std::uint64_t fields, bool single_threaded) {
  queue.poll_lock.emplace(single_threaded, kBiasOfExtended);
  ibv_cq_ex& cq = queue.cq;
  cq.start_poll = start;
  cq.next_poll = next;
  cq.end_poll = end;
  cq.read_opcode = [](ibv_cq_ex* at) { return current(at).opcode; };
  cq.read_vendor_err = [](ibv_cq_ex* at) { return current(at).vendor_err; };
  cq.read_wc_flags = [](ibv_cq_ex* at) { return current(at).wc_flags; };
  if ((fields & IBV_WC_EX_WITH_BYTE_LEN) != 0) cq.read_byte_len = [](ibv_cq_ex* at) { return current(at).byte_len; };
  if ((fields & IBV_WC_EX_WITH_IMM) != 0) cq.read_imm_data = [](ibv_cq_ex* at) { return current(at).imm_data; };
  if ((fields & IBV_WC_EX_WITH_QP_NUM) != 0) cq.read_qp_num = [](ibv_cq_ex* at) { return current(at).qp_num; };
  if ((fields & IBV_WC_EX_WITH_SRC_QP) != 0) cq.read_src_qp = [](ibv_cq_ex* at) { return current(at).src_qp; };
  if ((fields & IBV_WC_EX_WITH_SLID) != 0) {
    cq.read_slid = [](ibv_cq_ex* at) { return std::uint32_t{current(at).slid}; };
  }
  if ((fields & IBV_WC_EX_WITH_SL) != 0) cq.read_sl = [](ibv_cq_ex* at) { return current(at).sl; };
  if ((fields & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0) {
    cq.read_dlid_path_bits = [](ibv_cq_ex* at) { return current(at).dlid_path_bits; };
  }
  // Completions carry no time of their own: these say when the program reads it.
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) {
    cq.read_completion_ts = [](ibv_cq_ex*) { return nanoseconds(CLOCK_MONOTONIC); };
  }
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0) {
    cq.read_completion_wallclock_ns = [](ibv_cq_ex*) { return nanoseconds(CLOCK_REALTIME); };
  }
}

}  // namespace splitnic::ibverbs
