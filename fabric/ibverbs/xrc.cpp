// XRC domains, and further handles of their queue pairs.
#include <fcntl.h>
#include <sys/stat.h>

#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using Number = std::shared_ptr<const fabric::XrcDomain>;

Number new_number(Context& context) { return std::make_shared<fabric::XrcDomain>(++context.xrc_domains_made); }

/// The domain of a file, one for each opened device: queue pairs of other processes are on other endnodes. The errors
/// are those of the kernel. Under Context::lock.
Number number_of_file(Context& context, int descriptor, int flags) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0) return nullptr;  // errno says why
  auto& known = context.xrc_files[{about.st_dev, about.st_ino}];
  Number number = known.lock();
  const bool creates = (flags & O_CREAT) != 0;
  const bool exclusive = (flags & O_EXCL) != 0;
  if (number == nullptr ? !creates : exclusive) {
    errno = number == nullptr ? EAGAIN : EINVAL;
    return nullptr;
  }
  if (number == nullptr) known = number = new_number(context);
  return number;
}

ibv_xrcd* open(ibv_context* device, const ibv_xrcd_init_attr& wanted) {
  constexpr std::uint32_t kBoth = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((wanted.comp_mask & ~kBoth) != 0) return refuse<ibv_xrcd>(EOPNOTSUPP);
  if (wanted.comp_mask != kBoth) return refuse<ibv_xrcd>(EINVAL);
  Context& context = Context::of(device);
  auto domain = std::make_unique<XrcDomain>();
  domain->xrcd.context = device;
  const std::lock_guard guard(context.lock);
  std::erase_if(context.xrc_files, [](const auto& file) { return file.second.expired(); });
  domain->of_file = wanted.fd != -1;
  domain->number = wanted.fd == -1 ? new_number(context) : number_of_file(context, wanted.fd, wanted.oflags);
  return domain->number == nullptr ? nullptr : &domain.release()->xrcd;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* wanted) noexcept {
  return creating([&] { return open(context, *wanted); });
}

int close_xrcd(ibv_xrcd* xrcd) noexcept {
  XrcDomain& domain = XrcDomain::of(xrcd);
  if (domain.users != 0) return EBUSY;
  delete &domain;
  return 0;
}

/// Another handle of a target, in the same XRC domain.
ibv_qp* open_target(ibv_context* device, const ibv_qp_open_attr& wanted) {
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (wanted.comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return refuse<ibv_qp>(EOPNOTSUPP);
  const bool given = (wanted.comp_mask & kNeeded) == kNeeded && wanted.qp_type == IBV_QPT_XRC_RECV &&
                     wanted.xrcd != nullptr && wanted.xrcd->context == device;
  if (!given) return refuse<ibv_qp>(EINVAL);
  Context& context = Context::of(device);
  XrcDomain& domain = XrcDomain::of(wanted.xrcd);
  const std::lock_guard guard(context.lock);
  const auto found = context.objects.queue_pairs.find(wanted.qp_num);
  // The file's domain has targets of other processes, too, with hardware. They are on other endnodes.
  if (found == context.objects.queue_pairs.end()) return refuse<ibv_qp>(domain.of_file ? EOPNOTSUPP : EINVAL);
  // Of a queue pair that is no target the domain is none.
  if (found->second->connection->xrc_domain != *domain.number) return refuse<ibv_qp>(EINVAL);
  const QueuePair& first = *found->second;
  auto handle = std::make_unique<QueuePair>();
  handle->number = first.number;
  handle->connection = first.connection;
  ibv_qp& qp = *handle->base();
  qp.context = device;
  if ((wanted.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0) qp.qp_context = wanted.qp_context;
  qp.handle = context.next_handle();
  qp.qp_num = wanted.qp_num;
  qp.state = first.qp.qp_base.state;
  qp.qp_type = IBV_QPT_XRC_RECV;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
  handle->connection->handles.push_back(handle.get());
  handle->of_xrc_domain = UseOf(domain.users);
  return handle.release()->base();
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* wanted) noexcept {
  return creating([&] { return open_target(context, *wanted); });
}

}  // namespace

void set_xrc_verbs(Context& context) {
  context.verbs.open_xrcd = open_xrcd;
  context.verbs.close_xrcd = close_xrcd;
  context.verbs.open_qp = open_qp;
}

}  // namespace splitnic::ibverbs
