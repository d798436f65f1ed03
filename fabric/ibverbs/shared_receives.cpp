// Shared receive queues.
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* wanted) noexcept {
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  const bool basic = (wanted->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || wanted->srq_type == IBV_SRQT_BASIC;
  if ((wanted->comp_mask & ~kKnown) != 0 || !basic) return refuse<ibv_srq>(EOPNOTSUPP);
  return refuse<ibv_srq>(EINVAL);  // without a protection domain: with one, the header calls ibv_create_srq()
}

int modify(SharedReceives& receives, const ibv_srq_attr& attributes, int mask) {
  Context& context = Context::of(receives.srq.context);
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0;
  const bool arms = (mask & IBV_SRQ_LIMIT) != 0;
  if (resizes && (attributes.max_wr == 0 || attributes.max_wr > kMaxQueueDepth)) return EINVAL;
  const std::lock_guard guard(context.lock);
  if (arms && attributes.srq_limit > (resizes ? attributes.max_wr : receives.attributes.max_wr)) return EINVAL;
  const auto changed = context.adapter->use([&](ChannelAdapter& adapter) {
    const auto resized =
        resizes ? adapter.resize_shared_receive_queue(receives.number, attributes.max_wr) : fabric::Status::ok;
    if (resized != fabric::Status::ok) return fabric::Status::bad_argument;  // also where more receives are posted
    return arms ? adapter.arm_limit(receives.number, attributes.srq_limit) : fabric::Status::ok;
  });
  if (changed != fabric::Status::ok) return error_number(changed);
  if (resizes) receives.attributes.max_wr = attributes.max_wr;
  return 0;
}

}  // namespace

void set_shared_receive_verbs(Context& context) { context.verbs.create_srq_ex = create_srq_ex; }

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* wanted) {
  return creating([&]() -> ibv_srq* {
    Context& context = Context::of(pd->context);
    ibv_srq_attr& attributes = wanted->attr;
    const bool fits =
        attributes.max_wr != 0 && attributes.max_wr <= kMaxQueueDepth && attributes.max_sge <= context.limits.segments;
    if (!fits) return refuse<ibv_srq>(EINVAL);
    auto receives = std::make_unique<SharedReceives>();
    const auto made = context.adapter->use([&](ChannelAdapter& adapter) {
      return adapter.create_shared_receive_queue(Domain::of(pd).number, attributes.max_wr, /*verbs_rules=*/true);
    });
    if (!made) return refuse<ibv_srq>(ENOMEM);
    receives->number = *made;
    receives->of_domain = UseOf(Domain::of(pd).users);
    receives->attributes = attributes;
    receives->attributes.srq_limit = 0;
    ibv_srq& srq = receives->srq;
    srq.context = pd->context;
    srq.srq_context = wanted->srq_context;
    srq.pd = pd;
    srq.handle = context.next_handle();
    pthread_mutex_init(&srq.mutex, nullptr);
    pthread_cond_init(&srq.cond, nullptr);
    const std::lock_guard guard(context.lock);
    context.objects.shared_receives.emplace(made->value, receives.get());
    return &receives.release()->srq;
  });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  return answering([&] { return modify(SharedReceives::of(srq), *attributes, mask); });
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  Context& context = Context::of(srq->context);
  const std::lock_guard guard(context.lock);
  SharedReceives& receives = SharedReceives::of(srq);
  *attributes = receives.attributes;
  const auto limit =
      context.adapter->use([&](ChannelAdapter& adapter) { return adapter.armed_limit(receives.number); });
  attributes->srq_limit = static_cast<std::uint32_t>(limit);
  return 0;
}

int ibv_destroy_srq(ibv_srq* srq) {
  Context& context = Context::of(srq->context);
  SharedReceives& receives = SharedReceives::of(srq);
  {
    const std::lock_guard guard(context.lock);
    const auto gone = context.adapter->use(
        [&](ChannelAdapter& adapter) { return adapter.destroy_shared_receive_queue(receives.number); });
    if (gone != fabric::Status::ok) return error_number(gone);
    forget_destroyed(context, context.objects.shared_receives, receives.number.value, srq);
  }
  await_acknowledgement(*srq, srq->events_completed, receives.events_reported);
  delete &receives;
  return 0;
}

}  // extern "C"

}  // namespace splitnic::ibverbs
