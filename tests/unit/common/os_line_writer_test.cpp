#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/os/line_writer.h"
#include "common/os/log.h"
#include "os_temporary_directory.h"
#include "tests/unit/file_size_limit.h"

namespace splitnic::os::os_line_writer_test {
namespace {

/// A pipe or a pair of sockets: what is written at one end is read at the other.
struct Stream {
  UniqueFd reader;
  UniqueFd writer;

  static Stream pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  static Stream sockets() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  /// What is there to read now.
  std::string drain() const {
    std::string text;
    std::vector<char> chunk(65536);
    REQUIRE(::fcntl(reader.get(), F_SETFL, O_NONBLOCK) == 0);
    for (ssize_t got = 0; (got = ::read(reader.get(), chunk.data(), chunk.size())) > 0;) {
      text.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("a writer does not wait for its reader, and tells it how many lines are lost", "[common][log]") {
  const bool sockets = GENERATE(false, true);
  const Stream stream = sockets ? Stream::sockets() : Stream::pipe();
  LineWriter writer(stream.writer.get());
  constexpr std::uint64_t kLines = 20000;
  for (std::uint64_t line = 0; line < kLines; ++line)
    writer.write("line " + std::to_string(line) + std::string(90, '.'));
  const std::uint64_t lost = writer.lost();
  CHECK(lost > 0);
  CHECK(lost < kLines);
  CHECK(writer.waiting());

  std::string text;
  while (writer.waiting()) {
    text += stream.drain();
    writer.flush();
  }
  writer.write("the end");
  const auto lines = lines_of(text + stream.drain());
  // Every line is there in order, or counted as lost where it is missing.
  REQUIRE(lines.size() == kLines - lost + 2);
  for (std::uint64_t line = 0; line < kLines - lost; ++line) {
    REQUIRE(lines[line] == "line " + std::to_string(line) + std::string(90, '.'));
  }
  CHECK(lines[kLines - lost] == std::to_string(lost) + " lines of the log are lost: nobody read them");
  CHECK(lines.back() == "the end");
  CHECK(writer.lost() == lost);
}

TEST_CASE("a writer leaves the flags of its descriptor alone, which other processes share", "[common][log]") {
  const Stream stream = Stream::pipe();
  const int before = ::fcntl(stream.writer.get(), F_GETFL);
  LineWriter writer(stream.writer.get());
  writer.write("x");
  CHECK(::fcntl(stream.writer.get(), F_GETFL) == before);
  CHECK(stream.drain() == "x\n");
}

TEST_CASE("a writer goes on where a log file ends", "[common][log]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("log")) << "before\n";
  const UniqueFd file(::open(directory.path("log").c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::lseek(file.get(), 0, SEEK_END) == 7);
  LineWriter writer(file.get());
  for (int line = 0; line < 3000; ++line) writer.write(std::string(99, 'x'));
  CHECK(writer.lost() == 0);
  CHECK_FALSE(writer.waiting());
  CHECK(std::filesystem::file_size(directory.path("log")) == 7 + 3000 * 100);
}

TEST_CASE("lines that a full disk has no room for are counted, none is cut, and the file says how many are lost",
          "[common][log]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("log");
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  LineWriter writer(file.get());
  const auto line = [](std::uint64_t number) { return "line " + std::to_string(number) + std::string(90, '.'); };
  constexpr std::uint64_t kLines = 2000;
  std::uint64_t lost = 0;
  {
    const testing::FileSizeLimit full(150);  // in the second line
    for (std::uint64_t number = 0; number < kLines; ++number) writer.write(line(number));
    lost = writer.lost();
    CHECK(lost > 0);
    CHECK(lost < kLines);
    CHECK(writer.waiting());
    CHECK_FALSE(writer.flush());
    CHECK(std::filesystem::file_size(path) == 150);
  }
  CHECK(writer.flush());
  writer.write("the end");
  std::ifstream stream(path);
  const auto lines = lines_of({std::istreambuf_iterator<char>(stream), {}});
  REQUIRE(lines.size() == kLines - lost + 2);
  for (std::uint64_t number = 0; number < kLines - lost; ++number) REQUIRE(lines[number] == line(number));
  CHECK(lines[kLines - lost] == std::to_string(lost) + " lines of the log are lost: the file had no room");
  CHECK(lines.back() == "the end");
}

TEST_CASE("a device without room costs lines, which are counted", "[common][log]") {
  const UniqueFd device(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(device);
  LineWriter writer(device.get());
  for (int line = 0; line < 2000; ++line) writer.write(std::string(99, 'x'));
  CHECK(writer.lost() > 0);
}

TEST_CASE("a reader that is gone costs lines and nothing else", "[common][log]") {
  Stream stream = Stream::sockets();
  LineWriter writer(stream.writer.get());
  stream.reader.reset();
  for (int line = 0; line < 10; ++line) writer.write("x");
  CHECK_FALSE(writer.waiting());
}

TEST_CASE("a line longer than the room for lines is cut", "[common][log]") {
  const Stream stream = Stream::pipe();
  LineWriter writer(stream.writer.get());
  writer.write(std::string(1U << 20U, 'x'));
  std::string text = stream.drain();
  while (!writer.flush()) text += stream.drain();
  text += stream.drain();
  CHECK(text.size() == LineWriter::kMaxWaitingBytes);
  CHECK(text.back() == '\n');
}

TEST_CASE("a log whose reader is asleep blocks nobody", "[common][log]") {
  const Stream stream = Stream::pipe();
  Log log("x", {.descriptor = stream.writer.get()});
  for (int line = 0; line < 5000; ++line) log.info("{}", std::string(90, '.'));
  CHECK(log.lost() > 0);
  CHECK(log.waiting());
  while (!log.flush()) CHECK_FALSE(stream.drain().empty());
  CHECK_FALSE(log.waiting());
}

}  // namespace
}  // namespace splitnic::os::os_line_writer_test
