#include "common/os/core_task.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/os/log_notices.h"

namespace splitnic::os::os_core_task_test {
namespace {

/// A core that answers what a test says, and notes what it was asked.
struct ScriptedCore {
  std::vector<std::string> calls;
  bool may_sleep = true;
  std::size_t polls_until_finished = 0;

  std::size_t poll(Time) {
    calls.emplace_back("poll");
    if (polls_until_finished > 0) --polls_until_finished;
    return 3;
  }
  bool prepare_sleep() {
    calls.emplace_back("prepare_sleep");
    return may_sleep;
  }
  void disarm() { calls.emplace_back("disarm"); }
  bool peer_waits_for_core() { return true; }
  [[nodiscard]] MovedFrames moved() const { return {.frames = 4, .long_frames = 2}; }
  [[nodiscard]] Time next_deadline() const { return Time{std::chrono::seconds(7)}; }
  void collect_descriptors(std::vector<int>& out) const { out.push_back(11); }
  void begin_shutdown() { calls.emplace_back("begin_shutdown"); }
  [[nodiscard]] bool finished() const { return polls_until_finished == 0; }
};

TEST_CASE("a core as a task answers what the core answers", "[common][os]") {
  ScriptedCore core;
  CoreTask task(core);
  CHECK(task.poll(Time{}) == 3);
  CHECK(task.moved().frames == 4);
  CHECK(task.moved().long_frames == 2);
  CHECK(task.prepare_sleep(Time{}));
  core.may_sleep = false;
  CHECK_FALSE(task.prepare_sleep(Time{}));
  task.disarm();
  CHECK(core.calls == std::vector<std::string>{"poll", "prepare_sleep", "prepare_sleep", "disarm"});
  CHECK(task.peer_waits_for_core());
  CHECK(task.next_deadline() == Time{std::chrono::seconds(7)});
  std::vector<int> descriptors{5};
  task.collect_descriptors(descriptors);
  CHECK(descriptors == std::vector<int>{5, 11});
}

TEST_CASE("a core as a task rests as long as the core says, if it does", "[common][os]") {
  struct RestingCore : ScriptedCore {
    [[nodiscard]] Time rests_until() const { return Time{std::chrono::seconds(3)}; }
  };
  RestingCore resting;
  CHECK(CoreTask(resting).rests_until() == Time{std::chrono::seconds(3)});
  ScriptedCore other;
  CHECK(CoreTask(other).rests_until() == Time{});
}

TEST_CASE("a core is polled until it has shut down, or the patience ends", "[common][os]") {
  ScriptedCore core;
  core.polls_until_finished = 2;
  CHECK(shut_down(core));
  CHECK(core.calls == std::vector<std::string>{"begin_shutdown", "poll", "poll"});

  ScriptedCore silent;
  silent.polls_until_finished = SIZE_MAX;
  CHECK_FALSE(shut_down(silent, std::chrono::milliseconds(2)));
}

TEST_CASE("notices are lines of the log, as many of a kind each second as the limit says", "[common][os]") {
  std::vector<std::string> lines;
  LogOptions options;
  options.limit_per_second = 2;
  options.write = [&](std::string_view line) { lines.emplace_back(line); };
  Time now{};
  options.clock = [&] { return now; };
  Log log("unit", options);
  LogNotices notices(log);
  for (const char* text : {"often", "often", "often", "now and then"}) notices.notice(text);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].ends_with("unit: often"));
  CHECK(lines[2].ends_with("unit: now and then"));
  lines.clear();
  now += std::chrono::seconds(2);
  for (const char* text : {"first", "second", "third"}) notices.notice_from("a peer", text);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].ends_with("unit: first"));
  CHECK(lines[1].ends_with("unit: second"));
  now += std::chrono::seconds(2);
  notices.notice("often");
  CHECK(lines.back().ends_with("unit: often (suppressed 1 similar)"));
  lines.erase(lines.end() - 1);
  notices.notice("{} is no format");
  REQUIRE(lines.size() == 3);
  CHECK(lines[2].ends_with("unit: {} is no format"));
  for (int i = 0; i < 3; ++i) notices.recurring_notice("refused");
  REQUIRE(lines.size() == 4);
  CHECK(lines[3].ends_with("unit: refused"));
}

}  // namespace
}  // namespace splitnic::os::os_core_task_test
