#pragma once

#include <sys/epoll.h>

#include <catch2/catch.hpp>

#include "common/os/unique_fd.h"

namespace splitnic::test {

/// Watches a descriptor for edges, as programs do that use EPOLLET.
struct EdgeWatch {
  explicit EdgeWatch(int descriptor) : set(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    REQUIRE(set);
    REQUIRE(epoll_ctl(set.get(), EPOLL_CTL_ADD, descriptor, &event) == 0);
  }
  /// There is an edge within a second that no call has seen.
  [[nodiscard]] bool sees_edge() const {
    epoll_event event{};
    return epoll_wait(set.get(), &event, 1, 1000) == 1;
  }
  os::UniqueFd set;
};

}  // namespace splitnic::test
