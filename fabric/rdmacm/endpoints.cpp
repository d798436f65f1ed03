// rdma_getaddrinfo(), and identifiers that are made of its result, with their queue pairs.
#include <netdb.h>

#include <cstdlib>
#include <cstring>

#include "fabric/rdmacm/objects.h"

namespace splitnic::rdmacm {
namespace {

/// The longest that resolving an address or a route may take, in ms. Here both are done at once.
constexpr int kResolveMilliseconds = 2000;

/// Programs free the result with rdma_freeaddrinfo(), which knows only malloc(3).
template <class T>
T* copy_of(const T* from, std::size_t bytes) {
  auto* copy = static_cast<T*>(std::malloc(bytes));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(static_cast<void*>(copy), from, bytes);
  return copy;
}

void set_source(rdma_addrinfo& info, const sockaddr* from, socklen_t bytes) {
  info.ai_src_addr = copy_of(from, bytes);
  info.ai_src_len = bytes;
}

void set_destination(rdma_addrinfo& info, const sockaddr* from, socklen_t bytes) {
  info.ai_dst_addr = copy_of(from, bytes);
  info.ai_dst_len = bytes;
}

addrinfo system_hints(const rdma_addrinfo& from) {
  addrinfo hints{};
  hints.ai_flags = ((from.ai_flags & RAI_PASSIVE) != 0 ? AI_PASSIVE : 0) |
                   ((from.ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
  hints.ai_family = from.ai_family;
  const bool datagrams = from.ai_qp_type == IBV_QPT_UD || from.ai_port_space == RDMA_PS_UDP;
  hints.ai_socktype = datagrams ? SOCK_DGRAM : SOCK_STREAM;
  return hints;
}

/// From the names. 0, or the error of getaddrinfo(3).
int find(const char* node, const char* service, rdma_addrinfo& info) {
  const addrinfo hints = system_hints(info);
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(node, service, &hints, &found)) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  info.ai_family = found->ai_family;
  if ((info.ai_flags & RAI_PASSIVE) != 0) {
    set_source(info, found->ai_addr, found->ai_addrlen);
    if (found->ai_canonname != nullptr)
      info.ai_src_canonname = copy_of(found->ai_canonname, std::strlen(found->ai_canonname) + 1);
  } else {
    set_destination(info, found->ai_addr, found->ai_addrlen);
    if (found->ai_canonname != nullptr)
      info.ai_dst_canonname = copy_of(found->ai_canonname, std::strlen(found->ai_canonname) + 1);
  }
  return 0;
}

void set_kind(rdma_addrinfo& info) {
  if (info.ai_port_space == 0) info.ai_port_space = info.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (info.ai_qp_type == 0) {
    const bool datagrams = info.ai_port_space == RDMA_PS_UDP || info.ai_port_space == RDMA_PS_IPOIB;
    info.ai_qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_RC;
  }
}

/// 0, an error of getaddrinfo(3), or -1 with errno.
int fill(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo& info) {
  if (hints != nullptr) {
    info.ai_flags = hints->ai_flags;
    info.ai_family = hints->ai_family;
    info.ai_qp_type = hints->ai_qp_type;
    info.ai_port_space = hints->ai_port_space;
  }
  if (node != nullptr || service != nullptr) {
    if (const int error = find(node, service, info)) return error;
  } else if (hints->ai_dst_len != 0) {
    set_destination(info, hints->ai_dst_addr, hints->ai_dst_len);
  }
  if (info.ai_src_len == 0 && hints != nullptr && hints->ai_src_len != 0)
    set_source(info, hints->ai_src_addr, hints->ai_src_len);
  set_kind(info);
  return 0;
}

/// An identifier that is bound and listens later, or whose path is resolved. 0 or -1 with errno.
int prepare(rdma_cm_id* id, const rdma_addrinfo& from, ibv_pd* pd, ibv_qp_init_attr* wanted) {
  Identifier& identifier = Identifier::of(id);
  if ((from.ai_flags & RAI_PASSIVE) != 0) {
    if (wanted != nullptr) {
      identifier.queue_pair_wanted = std::make_unique<ibv_qp_init_attr>(*wanted);
      identifier.queue_pair_wanted->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
    }
    identifier.wanted_pd = pd;
    return rdma_bind_addr(id, from.ai_src_addr);
  }
  if (rdma_resolve_addr(id, from.ai_src_addr, from.ai_dst_addr, kResolveMilliseconds) != 0) return -1;
  if (rdma_resolve_route(id, kResolveMilliseconds) != 0) return -1;
  if (wanted != nullptr) {
    wanted->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
    if (rdma_create_qp(id, pd, wanted) != 0) return -1;
  }
  const auto* data = static_cast<const std::byte*>(from.ai_connect);
  if (data != nullptr) identifier.connect_data.assign(data, data + from.ai_connect_len);
  return 0;
}

}  // namespace

extern "C" {

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result) {
  if (result == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) return refuse(EINVAL);
  return guarded([&] {
    auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
    if (info == nullptr) return refuse(ENOMEM);
    std::unique_ptr<rdma_addrinfo, decltype(&rdma_freeaddrinfo)> owner(info, rdma_freeaddrinfo);
    if (const int error = fill(node, service, hints, *info)) return error;
    *result = owner.release();
    return 0;
  });
}

void rdma_freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* const next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_route);
    std::free(info->ai_connect);
    std::free(info);
    info = next;
  }
}

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* from, ibv_pd* pd, ibv_qp_init_attr* wanted) {
  if (id == nullptr || from == nullptr) return refuse(EINVAL);
  return guarded([&] {
    rdma_cm_id* made = nullptr;
    if (create_identifier(nullptr, &made, nullptr, static_cast<rdma_port_space>(from->ai_port_space),
                          static_cast<ibv_qp_type>(from->ai_qp_type)) != 0) {
      return -1;
    }
    if (prepare(made, *from, pd, wanted) == 0) {
      *id = made;
      return 0;
    }
    const int error = errno;
    rdma_destroy_ep(made);
    return refuse(error);
  });
}

void rdma_destroy_ep(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

}  // extern "C"

}  // namespace splitnic::rdmacm
