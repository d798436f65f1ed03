#pragma once

#include <cstddef>
#include <span>

#include "common/os/unique_fd.h"
#include "fabric/bridge/bridge.h"

namespace splitnic::iounit {

/// Tells at which bridges a doorbell or a link change is pending, so that the unit need not ask them all. Thread: the
/// unit's.
class DoorbellWatch {
 public:
  virtual ~DoorbellWatch() = default;
  /// bridge: lent until forget(). place: what rung() reports. False: this bridge can't be watched.
  [[nodiscard]] virtual bool watch(const fabric::Bridge& bridge, std::size_t place) = 0;
  virtual void forget(const fabric::Bridge& bridge) = 0;
  /// Some of the places where something is pending, at most out.size(); returns how many. Reports a place again until
  /// the doorbell is taken; with more places than fit, the next call reports others.
  [[nodiscard]] virtual std::size_t rung(std::span<std::size_t> out) = 0;
  /// Readable while anything is pending at any watched bridge; -1: there is none (the simulation).
  [[nodiscard]] virtual int descriptor() const = 0;
};

/// By one epoll. For bridges with a descriptor of their own.
class EpollWatch final : public DoorbellWatch {
 public:
  /// Throws StartupError if the kernel gives no descriptor.
  EpollWatch();
  [[nodiscard]] bool watch(const fabric::Bridge& bridge, std::size_t place) override;
  void forget(const fabric::Bridge& bridge) override;
  [[nodiscard]] std::size_t rung(std::span<std::size_t> out) override;
  [[nodiscard]] int descriptor() const override { return epoll_.get(); }

 private:
  os::UniqueFd epoll_;
};

}  // namespace splitnic::iounit
