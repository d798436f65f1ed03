// Shared receive queues.
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using fabric::ChannelAdapter;

/// xrc_domain: null for a queue that queue pairs name themselves.
ibv_srq* create(ibv_pd* pd, void* user, ibv_srq_attr& attributes, const fabric::XrcReceives& xrc,
                XrcDomain* xrc_domain) {
  Context& context = Context::of(pd->context);
  const bool fits =
      attributes.max_wr != 0 && attributes.max_wr <= kMaxQueueDepth && attributes.max_sge <= context.limits.segments;
  if (!fits) return refuse<ibv_srq>(EINVAL);
  auto receives = std::make_unique<SharedReceives>();
  const auto made = context.adapter->use([&](ChannelAdapter& adapter) {
    return adapter.create_shared_receive_queue(Domain::of(pd).number, attributes.max_wr, /*verbs_rules=*/true, xrc);
  });
  if (!made) return refuse<ibv_srq>(ENOMEM);
  receives->number = *made;
  receives->of_domain = UseOf(Domain::of(pd).users);
  if (xrc_domain != nullptr) receives->of_xrc_domain = UseOf(xrc_domain->users);
  receives->attributes = attributes;
  receives->attributes.srq_limit = 0;
  ibv_srq& srq = receives->srq;
  srq.context = pd->context;
  srq.srq_context = user;
  srq.pd = pd;
  srq.handle = context.next_handle();
  pthread_mutex_init(&srq.mutex, nullptr);
  pthread_cond_init(&srq.cond, nullptr);
  const std::lock_guard guard(context.lock);
  context.objects.shared_receives.emplace(made->value, receives.get());
  return &receives.release()->srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* wanted) noexcept {
  constexpr std::uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kXrc;
  const ibv_srq_type type = (wanted->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? wanted->srq_type : IBV_SRQT_BASIC;
  const bool xrc = type == IBV_SRQT_XRC;
  if ((wanted->comp_mask & ~kKnown) != 0 || (!xrc && type != IBV_SRQT_BASIC)) return refuse<ibv_srq>(EOPNOTSUPP);
  // Of a basic one the header calls ibv_create_srq() instead, if there is a protection domain and nothing else.
  const bool given = (wanted->comp_mask & (IBV_SRQ_INIT_ATTR_PD | kXrc)) == (IBV_SRQ_INIT_ATTR_PD | kXrc);
  const auto here = [context](const auto* object) { return object != nullptr && object->context == context; };
  const bool fits = xrc && given && here(wanted->pd) && here(wanted->xrcd) && here(wanted->cq);
  if (!fits) return refuse<ibv_srq>(EINVAL);
  XrcDomain& domain = XrcDomain::of(wanted->xrcd);
  const fabric::XrcReceives receives{*domain.number, CompletionQueue::of(wanted->cq).number};
  return creating([&] { return create(wanted->pd, wanted->srq_context, wanted->attr, receives, &domain); });
}

/// By which peers name it.
int get_srq_num(ibv_srq* srq, std::uint32_t* number) noexcept {
  const SharedReceives& receives = SharedReceives::of(srq);
  if (!receives.of_xrc_domain) return EINVAL;
  *number = receives.number.value;
  return 0;
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

void set_shared_receive_verbs(Context& context) {
  context.verbs.create_srq_ex = create_srq_ex;
  context.verbs.get_srq_num = get_srq_num;
}

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* wanted) {
  return creating([&] { return create(pd, wanted->srq_context, wanted->attr, {}, nullptr); });
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
