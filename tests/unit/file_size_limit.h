#pragma once

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstddef>

namespace splitnic::testing {

/// While it lives, no file of this process grows beyond `bytes`: a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handled_before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handled_before_)(int) = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before_{};
};

}  // namespace splitnic::testing
