// Memory windows of both types. Those of type 2 are bound by posts (posts.cpp).
#include <array>

#include "fabric/ibverbs/objects.h"
#include "fabric/ibverbs/requests.h"
#include "fabric/memory/protection_table.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return refuse<ibv_mw>(EINVAL);
  return creating([&]() -> ibv_mw* {
    auto window = std::make_unique<Window>();
    const auto kind = type == IBV_MW_TYPE_1 ? fabric::EntryKind::window_type_1 : fabric::EntryKind::window_type_2;
    std::array<fabric::Stag, 1> tag{};
    const auto made = Context::of(pd->context).adapter->use([&](ChannelAdapter& adapter) {
      return adapter.table().allocate_windows(Domain::of(pd).number, kind, tag);
    });
    if (!made) return refuse<ibv_mw>(ENOMEM);
    window->index = tag[0].index();
    window->of_domain = UseOf(Domain::of(pd).users);
    window->mw = {pd->context, pd, tag[0].value, Context::of(pd->context).next_handle(), type};
    return &window.release()->mw;
  });
}

/// The tag has the instance of the last binding that was carried out, which is the table's to know.
int dealloc_mw(ibv_mw* mw) noexcept {
  Window& window = Window::of(mw);
  const auto freed = Context::of(mw->context).adapter->use([&](ChannelAdapter& adapter) {
    const fabric::ProtectionEntry* entry = adapter.table().at(window.index);
    return entry != nullptr &&
           adapter.table().deallocate(fabric::Stag::from(window.index, entry->instance)).has_value();
  });
  if (!freed) return EINVAL;
  delete &window;
  return 0;
}

/// A binding of a type 1 window is a request of the send queue; the window's key is new at once. A program whose
/// binding fails later puts the key from before it back. Source: ibv_bind_mw(3).
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  Window& window = Window::of(mw);
  QueuePair& queue_pair = QueuePair::of(qp);
  if (qp->qp_type == IBV_QPT_UD || mw->pd->context != qp->context) return EINVAL;
  return Context::of(mw->context).adapter->use([&](ChannelAdapter& adapter) {
    fabric::MemoryRequest memory = binding_of(window, bind->bind_info);
    fabric::WorkRequest request;
    request.id = bind->wr_id;
    request.operation = fabric::Operation::bind_window;
    request.signalled = queue_pair.all_signalled || (bind->send_flags & IBV_SEND_SIGNALED) != 0;
    request.fence = (bind->send_flags & IBV_SEND_FENCE) != 0;
    request.memory = &memory;
    const fabric::Status posted = adapter.post_send(queue_pair.number, request);
    if (posted != fabric::Status::ok) return error_number(posted);
    window.rename(ibv_inc_rkey(mw->rkey));
    return 0;
  });
}

}  // namespace

fabric::Bind binding_of(const Window& window, const ibv_mw_bind_info& info) {
  fabric::Bind bind;
  bind.window = window.tag();
  if (info.mr == nullptr || info.length == 0) return bind;  // unbinds
  bind.region = Region::of(info.mr).tag;
  bind.address = info.addr;
  bind.length = info.length;
  bind.zero_based = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
  using fabric::Right;
  if ((info.mw_access_flags & IBV_ACCESS_REMOTE_READ) != 0) bind.rights = bind.rights | Right::remote_read;
  if ((info.mw_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0) bind.rights = bind.rights | Right::remote_write;
  if ((info.mw_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0) bind.rights = bind.rights | Right::remote_atomic;
  return bind;
}

fabric::Bind binding_of_type_2(const Window& window, std::uint32_t key, const ibv_mw_bind_info& info) {
  fabric::Bind bind = binding_of(window, info);
  bind.key = fabric::Stag{key}.instance();
  return bind;
}

void set_window_verbs(Context& context) {
  context.verbs.context.ops.alloc_mw = alloc_mw;
  context.verbs.context.ops.bind_mw = bind_mw;
  context.verbs.context.ops.dealloc_mw = dealloc_mw;
}

}  // namespace splitnic::ibverbs
