#include "common/os/privileged_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>

namespace splitnic::os::os_privileged_process_test {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (const char letter : text) bytes.push_back(static_cast<std::byte>(letter));
  return bytes;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += static_cast<char>(byte);
  return text;
}

/// Answers with the process's number, and with a pipe's end of which the other end came with the request.
Result<PrivilegedMessage> serve(PrivilegedMessage request) {
  const std::string text = text_of(request.bytes);
  if (text == "who") return PrivilegedMessage{bytes_of(std::to_string(::getpid()))};
  if (text == "end") ::_exit(1);
  if (text == "late") ::poll(nullptr, 0, 5000);
  while (text == "hang") ::pause();  // as on a disk that never answers
  if (text != "pipe") return fail("{} is not served", text);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0 || ::write(ends[1], "hello", 5) != 5) return fail("no pipe");
  ::close(ends[1]);
  PrivilegedMessage answer{bytes_of(std::to_string(request.descriptors.size()))};
  answer.descriptors.emplace_back(ends[0]);
  return answer;
}

bool hangs_up(int descriptor) {
  pollfd state{descriptor, POLLIN, 0};
  return ::poll(&state, 1, 5000) == 1;
}

TEST_CASE("another process answers requests, with descriptors both ways", "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve});
  REQUIRE(process);
  const auto who = (*process)->request(bytes_of("who"), {});
  REQUIRE(who);
  CHECK(text_of(who->bytes) != std::to_string(::getpid()));

  const std::array<int, 2> sent{STDIN_FILENO, STDERR_FILENO};
  const auto answer = (*process)->request(bytes_of("pipe"), sent);
  REQUIRE(answer);
  CHECK(text_of(answer->bytes) == "2");
  REQUIRE(answer->descriptors.size() == 1);
  std::array<char, 8> text{};
  CHECK(::read(answer->descriptors.front().get(), text.data(), text.size()) == 5);
  CHECK(std::string(text.data()) == "hello");
}

TEST_CASE("a refusal comes back as the service's words, and the next request is served",
          "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve});
  REQUIRE(process);
  const auto refused = (*process)->request(bytes_of("cake"), {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "cake is not served");
  const auto too_long = (*process)->request(std::vector<std::byte>(kMaxPrivilegedBytes + 1), {});
  REQUIRE_FALSE(too_long);
  CHECK_THAT(too_long.error().message, Catch::Contains("at most 1024 bytes"));
  const std::vector<int> many(kMaxPrivilegedDescriptors + 1, STDIN_FILENO);
  const auto too_many = (*process)->request(bytes_of("pipe"), many);
  REQUIRE_FALSE(too_many);
  CHECK_THAT(too_many.error().message, Catch::Contains("12 descriptors"));
  CHECK((*process)->request(bytes_of("who"), {}));
  CHECK_FALSE((*process)->ended());
}

TEST_CASE("the end of the privileged process is seen, and requests fail from then on", "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve});
  REQUIRE(process);
  CHECK_FALSE((*process)->ended());
  const auto cut = (*process)->request(bytes_of("end"), {});
  REQUIRE_FALSE(cut);
  CHECK(cut.error().message == "the privileged process has ended");
  CHECK(hangs_up((*process)->descriptor()));
  CHECK((*process)->ended());
  CHECK_FALSE((*process)->request(bytes_of("who"), {}));
}

TEST_CASE("a privileged process that does not answer in time is lost, and that is said once",
          "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve, .patience = std::chrono::milliseconds(1000)});
  REQUIRE(process);
  int lost = 0;
  (*process)->on_lost([&lost] { ++lost; });
  REQUIRE((*process)->request(bytes_of("who"), {}));
  CHECK(lost == 0);
  const auto late = (*process)->request(bytes_of("late"), {});
  REQUIRE_FALSE(late);
  CHECK(late.error().message == "the privileged process does not answer");
  CHECK(lost == 1);
  CHECK((*process)->ended());
  CHECK_FALSE((*process)->request(bytes_of("who"), {}));
  CHECK(lost == 1);
}

TEST_CASE("the privileged process ends after its requester, whatever signals say, and does its last work then",
          "[common][privileged-process]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  // The process keeps no descriptor but stderr, which is the pipe for it.
  const int stderr_before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  auto process = PrivilegedProcess::start(
      {.service = serve, .end = [] { static_cast<void>(!::write(STDERR_FILENO, "last", 4)); }});
  REQUIRE(::dup2(stderr_before, STDERR_FILENO) == STDERR_FILENO);
  ::close(stderr_before);
  ::close(ends[1]);
  REQUIRE(process);
  const auto who = (*process)->request(bytes_of("who"), {});
  REQUIRE(who);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) REQUIRE(::kill(std::stoi(text_of(who->bytes)), number) == 0);
  CHECK((*process)->request(bytes_of("who"), {}));
  process->reset();
  REQUIRE(hangs_up(ends[0]));
  std::array<char, 8> text{};
  CHECK(::read(ends[0], text.data(), text.size()) == 4);
  CHECK(std::string(text.data()) == "last");
  CHECK(::read(ends[0], text.data(), text.size()) == 0);  // it has ended
  ::close(ends[0]);
}

TEST_CASE("a signal to a privileged process that has not run yet does not end it", "[common][privileged-process]") {
  for (int round = 0; round < 100; ++round) {
    auto process = PrivilegedProcess::fork({.service = serve});
    REQUIRE(process);
    pid_t number = 0;  // the youngest child of this thread
    std::ifstream children("/proc/thread-self/children");
    for (pid_t next = 0; children >> next;) number = next;
    if (number == 0) {
      WARN("not tested: the kernel doesn't list the children of a thread (CONFIG_PROC_CHILDREN)");
      return;
    }
    REQUIRE(::kill(number, SIGTERM) == 0);
    REQUIRE((*process)->wait_until_begun());
    const auto who = (*process)->request(bytes_of("who"), {});
    REQUIRE(who);
    CHECK(text_of(who->bytes) == std::to_string(number));
    (*process)->end();
    REQUIRE(::waitpid(number, nullptr, 0) == number);
  }
}

TEST_CASE("the privileged process serves only after it has given up its rights", "[common][privileged-process]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  // Everything that it keeps is stderr.
  const int stderr_before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  const auto process = PrivilegedProcess::start(
      {.begin = [] { static_cast<void>(!::write(STDERR_FILENO, "given up", 8)); }, .service = serve});
  const auto refused = PrivilegedProcess::start({.begin = [] { throw StartupError{"no filter"}; }, .service = serve});
  REQUIRE(::dup2(stderr_before, STDERR_FILENO) == STDERR_FILENO);
  for (const int end : {stderr_before, ends[1]}) ::close(end);
  CHECK(process);
  std::array<char, 128> text{};
  CHECK(::read(ends[0], text.data(), 8) == 8);  // it was there when start() returned
  CHECK(std::string(text.data()) == "given up");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "the privileged process did not start");
  ::close(ends[0]);
}

TEST_CASE("a caller that did not wait for the start gets its answers all the same, or learns that there was none",
          "[common][privileged-process]") {
  const auto process = PrivilegedProcess::fork({.service = serve});
  REQUIRE(process);
  const auto who = (*process)->request(bytes_of("who"), {});
  REQUIRE(who);
  CHECK(std::stoi(text_of(who->bytes)) > 0);
  CHECK((*process)->wait_until_begun());
  const auto failed = PrivilegedProcess::fork({.begin = [] { throw StartupError{"no filter"}; }, .service = serve});
  REQUIRE(failed);
  for (int time = 0; time < 2; ++time) {
    const auto begun = (*failed)->wait_until_begun();
    REQUIRE_FALSE(begun);
    CHECK(begun.error().message == "the privileged process did not start");
  }
  CHECK_FALSE((*failed)->request(bytes_of("who"), {}));
  CHECK_FALSE((*failed)->send(bytes_of("who"), {}));
}

TEST_CASE("an answer can be collected later, and other requests may come before", "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve});
  REQUIRE(process);
  REQUIRE((*process)->send(bytes_of("cake"), {}));
  const auto who = (*process)->request(bytes_of("who"), {});
  REQUIRE(who);
  CHECK(std::stoi(text_of(who->bytes)) > 0);
  const auto later = (*process)->answer();
  REQUIRE(later);
  REQUIRE_FALSE(*later);
  CHECK(later->error().message == "cake is not served");

  REQUIRE((*process)->send(bytes_of("who"), {}));
  const auto waited_for = (*process)->answer(5000);
  REQUIRE(waited_for);
  REQUIRE(*waited_for);
  CHECK((**waited_for).bytes == who->bytes);
}

TEST_CASE("requests behind one that is not answered fail at once, and the process is lost when that is too old",
          "[common][privileged-process]") {
  constexpr std::chrono::milliseconds kPatience(3000);
  auto process = PrivilegedProcess::start({.service = serve, .patience = kPatience});
  REQUIRE(process);
  int lost = 0;
  (*process)->on_lost([&lost] { ++lost; });
  const Time sent = monotonic_now();
  REQUIRE((*process)->send(bytes_of("hang"), {}));
  const auto first = (*process)->request(bytes_of("who"), {});  // it waits
  REQUIRE_FALSE(first);
  if (lost == 0) CHECK(first.error().message == "the privileged process is busy");
  const Time behind = monotonic_now();
  std::size_t refused = 0;
  for (; lost == 0 && monotonic_now() - sent < std::chrono::seconds(30); ++refused) {
    REQUIRE_FALSE((*process)->request(bytes_of("who"), {}));
  }
  CHECK(lost == 1);
  CHECK(monotonic_now() - sent >= kPatience);
  // Had each of them waited, there would be one or two.
  CHECK((refused > 100 || behind - sent >= kPatience));
  CHECK((*process)->ended());
  const auto answer = (*process)->answer(60'000);
  REQUIRE(answer);
  REQUIRE_FALSE(*answer);
  CHECK(answer->error().message == "the privileged process has ended");
  CHECK(lost == 1);
}

TEST_CASE("a privileged process that waits for ever does its last work and ends when its requester has ended",
          "[common][privileged-process]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const int stderr_before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  auto process = PrivilegedProcess::start(
      {.service = serve, .end = [] { static_cast<void>(!::write(STDERR_FILENO, "last", 4)); }});
  REQUIRE(::dup2(stderr_before, STDERR_FILENO) == STDERR_FILENO);
  for (const int end : {stderr_before, ends[1]}) ::close(end);
  REQUIRE(process);
  REQUIRE((*process)->send(bytes_of("hang"), {}));
  const bool orderly = GENERATE(true, false);
  if (orderly) {
    (*process)->end();
    CHECK((*process)->ended());
  } else {
    process->reset();  // as after kill -9
  }
  std::string text;
  for (std::array<char, 8> part{}; hangs_up(ends[0]);) {
    const ssize_t got = ::read(ends[0], part.data(), part.size());
    if (got <= 0) break;  // it has ended
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  CHECK(text == "last");
  pollfd state{ends[0], 0, 0};
  CHECK(::poll(&state, 1, 0) == 1);
  ::close(ends[0]);
}

TEST_CASE("the end is seen although an answer waits", "[common][privileged-process]") {
  auto process = PrivilegedProcess::start({.service = serve});
  REQUIRE(process);
  const auto who = (*process)->request(bytes_of("who"), {});
  REQUIRE(who);
  REQUIRE((*process)->send(bytes_of("cake"), {}));
  REQUIRE(hangs_up((*process)->descriptor()));  // readable
  CHECK_FALSE((*process)->ended());
  REQUIRE(::kill(std::stoi(text_of(who->bytes)), SIGKILL) == 0);
  pollfd state{(*process)->descriptor(), 0, 0};
  REQUIRE(::poll(&state, 1, 5000) == 1);
  CHECK((*process)->ended());
  CHECK((*process)->answer());
}

TEST_CASE("end() returns when the last work is done", "[common][privileged-process]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const int stderr_before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  auto process = PrivilegedProcess::start(
      {.service = serve, .end = [] { static_cast<void>(!::write(STDERR_FILENO, "last", 4)); }});
  REQUIRE(::dup2(stderr_before, STDERR_FILENO) == STDERR_FILENO);
  for (const int end : {stderr_before, ends[1]}) ::close(end);
  REQUIRE(process);
  REQUIRE((*process)->send(bytes_of("who"), {}));  // nobody collects it
  (*process)->end();
  std::array<char, 8> text{};
  CHECK(::read(ends[0], text.data(), text.size()) == 4);
  CHECK((*process)->ended());
  CHECK_FALSE((*process)->request(bytes_of("who"), {}));
  ::close(ends[0]);
}

}  // namespace
}  // namespace splitnic::os::os_privileged_process_test
