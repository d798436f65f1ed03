// Extended posting: requests built with ibv_wr_*, posted together.
#include <cstring>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/requests.h"

namespace splitnic::ibverbs {
namespace {

using fabric::Operation;
using fabric::Stag;

/// A new request with the identifier and flags that the program has set.
BuiltRequest* begin(ibv_qp_ex* qp, Operation operation) {
  QueuePair& queue_pair = QueuePair::of(qp);
  if (queue_pair.build_error != 0) return nullptr;
  try {
    if (queue_pair.built_count == queue_pair.built.size()) queue_pair.built.emplace_back();
  } catch (...) {
    queue_pair.build_error = ENOMEM;
    return nullptr;
  }
  BuiltRequest& built = queue_pair.built[queue_pair.built_count++];
  built.clear();
  fabric::WorkRequest& request = built.request;
  request.id = qp->wr_id;
  request.operation = operation;
  request.signalled = queue_pair.all_signalled || (qp->wr_flags & IBV_SEND_SIGNALED) != 0;
  request.fence = (qp->wr_flags & IBV_SEND_FENCE) != 0;
  request.solicited = (qp->wr_flags & IBV_SEND_SOLICITED) != 0;
  return &built;
}

/// The request that setters change; null: building has failed, or there is none.
BuiltRequest* last(ibv_qp_ex* qp) {
  QueuePair& queue_pair = QueuePair::of(qp);
  if (queue_pair.build_error != 0) return nullptr;
  if (queue_pair.built_count == 0) queue_pair.build_error = EINVAL;
  return queue_pair.built_count == 0 ? nullptr : &queue_pair.built[queue_pair.built_count - 1];
}

void remote(ibv_qp_ex* qp, Operation operation, std::uint32_t key, std::uint64_t address, std::uint32_t immediate = 0) {
  BuiltRequest* built = begin(qp, operation);
  if (built == nullptr) return;
  built->request.remote = {address, Stag{key}};
  built->request.immediate = immediate;
}

void compare_swap(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t compare, std::uint64_t swap) {
  BuiltRequest* built = begin(qp, Operation::compare_swap);
  if (built == nullptr) return;
  built->request.remote = {address, Stag{key}};
  built->request.compare = compare;
  built->request.swap_or_add = swap;
}

void fetch_add(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t add) {
  BuiltRequest* built = begin(qp, Operation::fetch_add);
  if (built == nullptr) return;
  built->request.remote = {address, Stag{key}};
  built->request.swap_or_add = add;
}

void bind_window(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info* info) {
  BuiltRequest* built = begin(qp, Operation::bind_window);
  if (built == nullptr) return;
  if (mw->type != IBV_MW_TYPE_2) {
    QueuePair::of(qp).build_error = EINVAL;
    return;
  }
  built->memory = binding_of_type_2(Window::of(mw), key, *info);
}

void invalidating(ibv_qp_ex* qp, Operation operation, std::uint32_t key) {
  if (BuiltRequest* built = begin(qp, operation)) built->request.invalidate = Stag{key};
}

void send_immediate(ibv_qp_ex* qp, __be32 immediate) {
  if (BuiltRequest* built = begin(qp, Operation::send_with_immediate)) built->request.immediate = immediate;
}

void set_target(ibv_qp_ex* qp, ibv_ah* handle, std::uint32_t queue_pair, std::uint32_t queue_key) {
  BuiltRequest* built = last(qp);
  if (built == nullptr) return;
  make_way(handle, queue_pair);
  built->request.datagram = target_of(handle, queue_pair, queue_key);
}

void set_receives(ibv_qp_ex* qp, std::uint32_t number) {
  if (BuiltRequest* built = last(qp)) built->request.remote_receives = fabric::SrqNumber{number};
}

void set_segments(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  BuiltRequest* built = last(qp);
  if (built == nullptr) return;
  QueuePair& queue_pair = QueuePair::of(qp);
  const auto used = count <= queue_pair.capabilities.max_send_sge
                        ? segments_of(std::span(list, count), std::span(built->request.segments))
                        : kTooManySegments;
  if (used == kTooManySegments) {
    queue_pair.build_error = EINVAL;
  } else {
    built->request.segment_count = used;
  }
}

void set_segment(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint32_t bytes) {
  const ibv_sge one{address, bytes, key};
  set_segments(qp, 1, &one);
}

/// Copied now: the program may change its bytes at once.
void set_inline_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  BuiltRequest* built = last(qp);
  if (built == nullptr) return;
  QueuePair& queue_pair = QueuePair::of(qp);
  std::size_t total = 0;
  for (const ibv_data_buf& part : std::span(list, count)) total += part.length;
  if (total > queue_pair.capabilities.max_inline_data) {
    queue_pair.build_error = ENOMEM;
    return;
  }
  try {
    built->inline_data.resize(total);
  } catch (...) {
    queue_pair.build_error = ENOMEM;
    return;
  }
  std::size_t at = 0;
  for (const ibv_data_buf& part : std::span(list, count)) {
    if (part.length != 0) std::memcpy(built->inline_data.data() + at, part.addr, part.length);
    at += part.length;
  }
  built->request.inline_data = true;
  built->request.segment_count = total == 0 ? 0 : 1;
}

void set_inline(ibv_qp_ex* qp, void* address, std::size_t bytes) {
  const ibv_data_buf one{address, bytes};
  set_inline_list(qp, 1, &one);
}

void start(ibv_qp_ex* qp) {
  QueuePair& queue_pair = QueuePair::of(qp);
  queue_pair.build_lock.lock();
  queue_pair.built_count = 0;
  queue_pair.build_error = 0;
}

void abandon(ibv_qp_ex* qp) { QueuePair::of(qp).build_lock.unlock(); }

/// Points to what the built request itself owns, which does not move any more.
void finish(BuiltRequest& built) {
  if (built.memory) built.request.memory = &*built.memory;
  if (built.inline_data.empty()) return;
  const auto bytes = static_cast<std::uint32_t>(built.inline_data.size());
  built.request.segments[0] = {built.inline_data.data(), bytes, {}};
}

/// Whether all of them fit and can be posted.
int check_built(fabric::ChannelAdapter& adapter, const QueuePair& queue_pair, std::span<const BuiltRequest> requests) {
  const auto state = adapter.state(queue_pair.number);
  const bool sends = state && fabric::queue_pair_rules(*state).post_send;  // else they are flushed or refused
  if (sends && !adapter.has_send_room(queue_pair.number, requests.size())) return ENOMEM;
  for (const BuiltRequest& built : requests) {
    const fabric::Status checked = adapter.check_send(queue_pair.number, built.request);
    if (checked != fabric::Status::ok) return error_number(checked);
  }
  return 0;
}

/// All of them or none.
int post_built(fabric::ChannelAdapter& adapter, QueuePair& queue_pair) {
  const std::span requests = std::span(queue_pair.built).first(queue_pair.built_count);
  for (BuiltRequest& built : requests) finish(built);
  // A single one is checked by its post.
  if (requests.size() > 1) {
    if (const int refused = check_built(adapter, queue_pair, requests); refused != 0) return refused;
  }
  for (const BuiltRequest& built : requests) {
    const fabric::Status posted = adapter.post_send(queue_pair.number, built.request);
    if (posted != fabric::Status::ok) return error_number(posted);
  }
  return 0;
}

int complete(ibv_qp_ex* qp) {
  QueuePair& queue_pair = QueuePair::of(qp);
  const int refused = queue_pair.build_error != 0
                          ? queue_pair.build_error
                          : Context::of(queue_pair.base()->context).adapter->post([&](fabric::ChannelAdapter& adapter) {
                              return post_built(adapter, queue_pair);
                            });
  queue_pair.build_lock.unlock();
  return refused;
}

}  // namespace

void set_extended_posts(QueuePair& queue_pair) {
  ibv_qp_ex& qp = queue_pair.qp;
  qp.wr_atomic_cmp_swp = compare_swap;
  qp.wr_atomic_fetch_add = fetch_add;
  qp.wr_bind_mw = bind_window;
  qp.wr_local_inv = [](ibv_qp_ex* at, std::uint32_t key) { invalidating(at, Operation::local_invalidate, key); };
  qp.wr_rdma_read = [](ibv_qp_ex* at, std::uint32_t key, std::uint64_t address) {
    remote(at, Operation::rdma_read, key, address);
  };
  qp.wr_rdma_write = [](ibv_qp_ex* at, std::uint32_t key, std::uint64_t address) {
    remote(at, Operation::rdma_write, key, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* at, std::uint32_t key, std::uint64_t address, __be32 immediate) {
    remote(at, Operation::rdma_write_with_immediate, key, address, immediate);
  };
  qp.wr_send = [](ibv_qp_ex* at) { static_cast<void>(begin(at, Operation::send)); };
  qp.wr_send_imm = send_immediate;
  qp.wr_send_inv = [](ibv_qp_ex* at, std::uint32_t key) { invalidating(at, Operation::send_with_invalidate, key); };
  qp.wr_set_ud_addr = set_target;
  qp.wr_set_xrc_srqn = set_receives;
  qp.wr_set_inline_data = set_inline;
  qp.wr_set_inline_data_list = set_inline_list;
  qp.wr_set_sge = set_segment;
  qp.wr_set_sge_list = set_segments;
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = abandon;
}

}  // namespace splitnic::ibverbs
