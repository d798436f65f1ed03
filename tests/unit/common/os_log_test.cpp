#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/os/log.h"
#include "common/os/printable.h"

namespace splitnic::os::os_log_test {
namespace {

struct Captured {
  std::vector<std::string> lines;
  Time now{};

  LogOptions options(LogLevel level = LogLevel::kInfo) {
    return {.level = level,
            .limit_per_second = 2,
            .write = [this](std::string_view line) { lines.emplace_back(line); },
            .clock = [this] { return now; }};
  }
};

TEST_CASE("a log line says how grave it is, who speaks and what happened", "[common][log]") {
  Captured captured;
  Log log("host web1", captured.options());
  log.info("link {}", "up");
  log.warning("{} of {}", 1, 2);
  log.error("gone");
  CHECK(captured.lines ==
        std::vector<std::string>{"info  host web1: link up", "warn  host web1: 1 of 2", "error host web1: gone"});
}

TEST_CASE("lines below the level are not written", "[common][log]") {
  Captured captured;
  Log log("x", captured.options(LogLevel::kWarning));
  log.debug("no");
  log.info("no");
  log.limited("key", LogLevel::kInfo, "no");
  log.warning("yes");
  CHECK(captured.lines == std::vector<std::string>{"warn  x: yes"});
}

TEST_CASE("a peer's control characters don't reach the log", "[common][log]") {
  Captured captured;
  Log log("x", captured.options());
  log.info("name {}", "a\x1b[31m\nerror x: forged");
  CHECK(captured.lines == std::vector<std::string>{"info  x: name a?[31m?error x: forged"});
}

TEST_CASE("similar lines are limited per second and key, and the rest is counted", "[common][log]") {
  Captured captured;
  Log log("x", captured.options());
  for (int line = 0; line < 5; ++line) log.limited("bad", LogLevel::kWarning, "bad {}", line);
  log.limited("other", LogLevel::kWarning, "other");
  CHECK(captured.lines == std::vector<std::string>{"warn  x: bad 0", "warn  x: bad 1", "warn  x: other"});

  captured.now += std::chrono::milliseconds(999);
  log.limited("bad", LogLevel::kWarning, "still");
  CHECK(captured.lines.size() == 3);
  captured.now += std::chrono::milliseconds(1);
  log.limited("bad", LogLevel::kWarning, "again");
  log.limited("bad", LogLevel::kWarning, "and again");
  REQUIRE(captured.lines.size() == 5);
  CHECK(captured.lines[3] == "warn  x: again (suppressed 4 similar)");
  CHECK(captured.lines[4] == "warn  x: and again");
}

TEST_CASE("what is suppressed last is told at the end", "[common][log]") {
  Captured captured;
  {
    Log log("x", captured.options());
    for (int line = 0; line < 3; ++line) log.limited("bad", LogLevel::kWarning, "bad");
  }
  REQUIRE(captured.lines.size() == 3);
  CHECK(captured.lines[2] == "info  x: bad: suppressed 1 similar");
}

TEST_CASE("a line that recurs is written once, then counted and summed up now and then", "[common][log]") {
  Captured captured;
  {
    Log log("x", captured.options());
    const auto recur = [&](int times) {
      for (int time = 0; time < times; ++time) log.recurring(LogLevel::kInfo, "refused host a");
    };
    recur(1000);
    CHECK(captured.lines == std::vector<std::string>{"info  x: refused host a"});
    captured.now += std::chrono::minutes(10) - std::chrono::nanoseconds(1);
    recur(1);
    CHECK(captured.lines.size() == 1);
    captured.now += std::chrono::nanoseconds(1);
    recur(500);
    REQUIRE(captured.lines.size() == 2);
    CHECK(captured.lines[1] == "info  x: refused host a (1001 times since it was last reported)");
    log.recurring(LogLevel::kInfo, "refused host b");
    CHECK(captured.lines.back() == "info  x: refused host b");
    log.recurring(LogLevel::kDebug, "not of this level");
  }
  REQUIRE(captured.lines.size() == 4);
  CHECK(captured.lines.back() == "info  x: refused host a (499 more times)");
}

TEST_CASE("recurring lines that differ every time are limited together", "[common][log]") {
  Captured captured;
  {
    Log log("x", captured.options());
    for (int line = 0; line < 1000; ++line) log.recurring(LogLevel::kInfo, std::to_string(line));
    CHECK(captured.lines.size() == 2);
  }
  CHECK(captured.lines.back() == "info  x: recurring lines: suppressed 998 similar");
}

TEST_CASE("more keys than there is room for share one limit", "[common][log]") {
  Captured captured;
  Log log("x", captured.options());
  for (int key = 0; key < 5000; ++key) log.limited(std::to_string(key), LogLevel::kWarning, "line");
  CHECK(captured.lines.size() == 4096 + 2);
}

TEST_CASE("recurring lines of one key, however many, neither hide nor repeat those of another", "[common][log]") {
  Captured captured;
  Log log("x", captured.options());
  log.recurring(LogLevel::kInfo, "calm", "b");
  for (int line = 0; line < 1000; ++line) log.recurring(LogLevel::kInfo, std::to_string(line), "a");
  CHECK(captured.lines.size() == 3);
  log.recurring(LogLevel::kInfo, "calm", "b");
  CHECK(captured.lines.size() == 3);
  log.recurring(LogLevel::kInfo, "news", "b");
  REQUIRE(captured.lines.size() == 4);
  CHECK(captured.lines.back() == "info  x: news");
}

TEST_CASE("log levels have the names of the option", "[common][log]") {
  CHECK(parse_log_level("debug") == LogLevel::kDebug);
  CHECK(parse_log_level("warn") == LogLevel::kWarning);
  CHECK(parse_log_level("warning") == LogLevel::kWarning);
  CHECK(parse_log_level("off") == LogLevel::kOff);
  CHECK_FALSE(parse_log_level("loud"));
  CHECK_FALSE(parse_log_level(""));
}

TEST_CASE("valid UTF-8 is printable, controls and broken sequences are not", "[common][printable]") {
  CHECK(printable("Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(printable(std::string_view("a\0b\x7f", 4)) == "a?b?");
  CHECK(printable("\xc2\x9b") == "??");            // C1 control
  CHECK(printable("\xc0\xaf") == "??");            // overlong
  CHECK(printable("\xed\xa0\x80") == "???");       // surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "????");  // beyond U+10FFFF
  CHECK(printable("\xe2\x82") == "??");            // cut off
  CHECK(printable("\xff") == "?");
}

}  // namespace
}  // namespace splitnic::os::os_log_test
