#include "tools/unit_threads.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <latch>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/os/blocked_signals.h"
#include "common/os/control_client.h"
#include "common/os/core_task.h"
#include "common/os/log_notices.h"
#include "common/os/ready_before.h"
#include "tools/unit_parts.h"

namespace splitnic::tools {

namespace {

/// A thread answers within about 10 ms (EventLoop), or later where the machine is busy.
constexpr std::chrono::seconds kAnswerPatience(1);
static_assert(kAnswerPatience < os::kAnswerLimit, "the client waits for the error");

iounit::UnitGroupOptions group_of(const iounit::IoUnitOptions& options, std::size_t units) {
  return {.units = units, .hosts = options.max_hosts * units, .policy = options.policy};
}

}  // namespace

/// A unit's lines. The sources of different units differ, and only the first unit reports what concerns the LAN, which
/// all of them see.
class UnitThreads::MemberNotices final : public Notices {
 public:
  MemberNotices(os::Log& log, iounit::UnitNumber unit) : log_(log), unit_(unit) {}
  void notice(const std::string& line) override {
    if (unit_.value == 0) log_.notice(line);
  }
  void recurring_notice(const std::string& line) override { log_.recurring_notice(line); }
  void notice_from(std::string_view source, const std::string& line) override {
    log_.notice_from(of_unit(source), line);
  }
  void recurring_notice_from(std::string_view source, const std::string& line) override {
    log_.recurring_notice_from(of_unit(source), line);
  }

 private:
  [[nodiscard]] std::string of_unit(std::string_view source) const {
    return fmt::format("unit {} {}", unit_.value, source);
  }

  os::LogNotices log_;
  iounit::UnitNumber unit_;
};

/// One unit. Its thread owns it from start() until stop().
class UnitThreads::Member {
 public:
  Member(const DaemonOptions& daemon, const iounit::IoUnitOptions& options, iounit::UnitGroup& group,
         iounit::UnitNumber number, std::unique_ptr<iounit::LanEngine> wire, fabric::BridgeSource& bridges,
         os::Log& log)
      : wire_(std::move(wire)),
        lan_(group, number, *wire_),
        notices_(log, number),
        unit_(parts_.in(of_member(options)), lan_, bridges, parts_.random, notices_),
        loop_(loop_options_of_thread(daemon, log)),
        task_(unit_) {
    loop_.add(task_);
  }

  ~Member() {
    stop();
    join();
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void start() {
    thread_ = start_thread([this] { run(); });
    runs_.wait();
  }
  void stop() { loop_.stop(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// Lets the unit poll soon, although it sleeps.
  void wake() {
    boost::asio::post(loop_.context(), [] {});
  }
  [[nodiscard]] os::SpinCounters spins() const { return loop_.spins(); }
  std::future<UnitReport> report() {
    auto task = std::make_shared<std::packaged_task<UnitReport()>>([this] { return report_of_member(unit_, lan_); });
    boost::asio::post(loop_.context(), [task] { (*task)(); });
    return task->get_future();
  }
  void clear_hosts() {
    boost::asio::post(loop_.context(), [this] { clear_statistics_of_hosts(unit_); });
  }

 private:
  iounit::IoUnitOptions of_member(iounit::IoUnitOptions options) {
    options.group = &lan_;
    return options;
  }
  void run() {
    runs_.count_down();
    loop_.run();
    os::shut_down(unit_);
  }

  std::unique_ptr<iounit::LanEngine> wire_;
  iounit::GroupLan lan_;
  UnitParts parts_;
  MemberNotices notices_;
  iounit::IoUnit unit_;
  os::EventLoop loop_;
  os::CoreTask<iounit::IoUnit> task_;
  std::latch runs_{1};
  std::thread thread_;
};

UnitThreads::UnitThreads(const DaemonOptions& daemon, const iounit::IoUnitOptions& options,
                         std::vector<std::unique_ptr<iounit::LanEngine>> lans, fabric::BridgeSource& bridges,
                         os::Log& log)
    : bridges_(bridges),
      group_(group_of(options, lans.size()), random_),
      spread_(bridges, lans.size(), [this](iounit::UnitNumber unit) { members_[unit.value]->wake(); }) {
  for (auto& lan : lans) {
    const iounit::UnitNumber number{static_cast<std::uint16_t>(members_.size())};
    members_.push_back(
        std::make_unique<Member>(daemon, options, group_, number, std::move(lan), spread_.of(number), log));
  }
  const os::BlockedSignals blocked;  // the threads inherit it
  for (auto& member : members_) member->start();
}

UnitThreads::~UnitThreads() { shut_down(); }

void UnitThreads::shut_down() {
  for (auto& member : members_) member->stop();
  for (auto& member : members_) member->join();
}

os::SpinCounters UnitThreads::spins() const {
  os::SpinCounters sum;
  for (const auto& member : members_) sum += member->spins();
  return sum;
}

PolicyAccess UnitThreads::policy() {
  return {.change = [this](const auto& change) { group_.policy().change(change); },
          .read = [this](const auto& read) { group_.policy().read(read); },
          .set_rules =
              [this](iounit::PolicyRules rules) {
                group_.policy().change([&](iounit::Policy& policy) { policy.set_rules(std::move(rules)); });
                for (auto& member : members_) member->wake();
              },
          .changes_elsewhere = true};
}

Result<std::vector<UnitReport>> UnitThreads::reports(bool clear) {
  std::vector<std::future<UnitReport>> asked;
  for (auto& member : members_) asked.push_back(member->report());
  const Time give_up = monotonic_now() + kAnswerPatience;
  std::vector<UnitReport> reports;
  for (auto& report : asked) {
    if (!os::ready_before(report, give_up)) return fail("thread {} does not answer", reports.size() + 1);
    reports.push_back(report.get());
  }
  // Only now, because a request that fails clears nothing.
  for (auto& member : members_) {
    if (clear) member->clear_hosts();
  }
  return reports;
}

}  // namespace splitnic::tools
