#include "iounit/savefile_lan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/file_size_limit.h"
#include "tests/unit/iounit/collected_frames.h"
#include "tests/unit/quiet_log.h"

namespace splitnic::iounit::savefile_lan_test {
namespace {

using namespace std::chrono_literals;
using testing::FileSizeLimit;
using testing::quiet_log;
namespace fs = std::filesystem;

constexpr Time kStart{1h};
constexpr std::uint32_t kMicrosecondMagic = 0xa1b2c3d4;
constexpr std::uint32_t kNanosecondMagic = 0xa1b23c4d;
constexpr std::uint32_t kEthernet = 1;
constexpr std::uint32_t kRawIp = 101;

/// A directory of its own for each test, removed with everything in it.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "splitnic savefile XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// Writes classic pcap by hand, so that what libpcap would never write can be written too.
class CaptureWriter {
 public:
  CaptureWriter(const std::string& path, std::uint32_t magic = kMicrosecondMagic, std::uint32_t link_type = kEthernet)
      : file_(path, std::ios::binary) {
    for (const std::uint32_t word : {magic, 0x00040002U, 0U, 0U, 65535U, link_type}) put(word);
  }
  void record(std::uint32_t seconds, std::uint32_t fraction, const Frame& frame, std::uint32_t cut_bytes = 0) {
    const auto length = static_cast<std::uint32_t>(frame.size());
    for (const std::uint32_t word : {seconds, fraction, length, length + cut_bytes}) put(word);
    file_.write(reinterpret_cast<const char*>(frame.data()), static_cast<std::streamsize>(frame.size()));
  }
  void put(std::uint32_t word) {
    static_assert(std::endian::native == std::endian::little);
    file_.write(reinterpret_cast<const char*>(&word), sizeof word);
  }

 private:
  std::ofstream file_;
};

std::unique_ptr<SavefileLan> opened(const SavefileSpec& spec, Duration wall_at_zero = {}, os::Log& log = quiet_log()) {
  auto lan = SavefileLan::open(spec, kStart, wall_at_zero, log);
  if (!lan) FAIL(lan.error().message);
  return *std::move(lan);
}

std::string refusal(const SavefileSpec& spec) {
  const auto lan = SavefileLan::open(spec, kStart, {}, quiet_log());
  REQUIRE_FALSE(lan);
  return lan.error().message;
}

std::vector<std::uint32_t> words_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  return words;
}

TEST_CASE("playback starts with the wanted number of sessions and keeps the recorded pace", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"));
    capture.record(1000, 500'000, frame_of(60, 1));
    capture.record(1000, 750'000, frame_of(61, 2));
    capture.record(1003, 0, frame_of(62, 3));
  }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .wait_hosts = 2});
  CollectedFrames sink;
  CHECK(lan->next_deadline() == kNever);
  lan->on_sessions(1, kStart + 1s);
  lan->poll(kStart + 10s);
  CHECK(lan->receive(sink, 8) == 0);

  lan->on_sessions(2, kStart + 10s);
  CHECK(lan->next_deadline() <= kStart + 10s);
  CHECK(lan->receive(sink, 8) == 1);
  CHECK(lan->next_deadline() == kStart + 10s + 250ms);
  lan->on_sessions(3, kStart + 10s + 100ms);
  lan->poll(kStart + 10s + 249ms);
  CHECK(lan->receive(sink, 8) == 0);
  lan->poll(kStart + 10s + 250ms);
  CHECK(lan->receive(sink, 8) == 1);
  lan->poll(kStart + 12s + 500ms);
  CHECK(lan->receive(sink, 8) == 1);
  CHECK(lan->next_deadline() == kNever);
  CHECK(lan->played());
  CHECK(sink.frames == std::vector<Frame>{frame_of(60, 1), frame_of(61, 2), frame_of(62, 3)});
  CHECK(lan->counters().rx_frames == 3);
  CHECK(lan->counters().rx_truncated == 0);
}

TEST_CASE("pace=max hands frames over as fast as they are taken, within the budget", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"), kNanosecondMagic);
    for (std::uint32_t number = 0; number < 10; ++number) capture.record(number * 1000, 0, frame_of(60, number));
  }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .pace_max = true, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(lan->receive(sink, 4) == 4);
  CHECK(lan->next_deadline() <= kStart);
  CHECK(lan->receive(sink, 100) == 6);
  CHECK(lan->played());
  CHECK(lan->receive(sink, 100) == 0);
}

TEST_CASE("frames out of order in time are due at once, stamps of any value do no harm", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"));
    capture.record(1000, 0, frame_of(60, 1));
    capture.record(1, 0, frame_of(60, 2));
    capture.record(1000, 0xffffffff, frame_of(60, 3));
    capture.record(0xffffffff, 0, frame_of(60, 4));
    capture.record(0x7fffffff, 0, frame_of(60, 5));
  }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(lan->receive(sink, 8) == 4);
  CHECK(lan->next_deadline() > kStart + 100h);
  CHECK(lan->receive(sink, 8) == 0);
}

TEST_CASE("cut and runt records are counted and skipped", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"));
    capture.record(0, 0, frame_of(60, 1), 1);
    capture.record(0, 0, frame_of(13, 2));
    capture.record(0, 0, frame_of(0, 2));
    capture.record(0, 0, frame_of(14, 3));
  }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(lan->receive(sink, 8) == 1);
  CHECK(sink.frames == std::vector<Frame>{frame_of(14, 3)});
  CHECK(lan->counters().rx_truncated == 3);
}

TEST_CASE("a capture that breaks off ends the playback, counted once", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"));
    capture.record(0, 0, frame_of(60, 1));
    capture.record(0, 0, frame_of(60, 2));
  }
  fs::resize_file(folder.file("in.pcap"), fs::file_size(folder.file("in.pcap")) - 7);
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(lan->receive(sink, 8) == 1);
  CHECK(lan->played());
  CHECK(lan->receive(sink, 8) == 0);
  CHECK(lan->counters().rx_truncated == 1);
}

TEST_CASE("a record that claims an absurd length ends the playback", "[iounit][savefile]") {
  const Folder folder;
  {
    CaptureWriter capture(folder.file("in.pcap"));
    for (const std::uint32_t word : {0U, 0U, 0xfffffff0U, 0xfffffff0U}) capture.put(word);
  }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(lan->receive(sink, 8) == 0);
  CHECK(lan->played());
  CHECK(lan->counters().rx_truncated == 1);
}

TEST_CASE("sent frames are in the output after flush, stamped in nanoseconds of the wall clock", "[iounit][savefile]") {
  const Folder folder;
  auto lan = opened({.input = {}, .output = folder.file("out.pcap")}, std::chrono::seconds{1'700'000'000} - 1h);
  CHECK(lan->played());
  lan->poll(kStart + 5ns);
  const Frame frame = frame_of(60, 1);
  REQUIRE(lan->send(frame));
  lan->poll(kStart + 2s);
  REQUIRE(lan->send(frame_of(64, 2)));
  lan->flush();
  const std::vector<std::uint32_t> words = words_of(folder.file("out.pcap"));
  REQUIRE(words.size() == 6 + 4 + 15 + 4 + 16);
  CHECK(words[0] == kNanosecondMagic);
  CHECK(words[5] == kEthernet);
  CHECK(std::vector(words.begin() + 6, words.begin() + 10) == std::vector<std::uint32_t>{1'700'000'000, 5, 60, 60});
  CHECK(std::memcmp(&words[10], frame.data(), frame.size()) == 0);
  CHECK(std::vector(words.begin() + 25, words.begin() + 29) == std::vector<std::uint32_t>{1'700'000'002, 0, 64, 64});
  CHECK_FALSE(lan->send(frame_of(13, 1)));
  CHECK(lan->counters().tx_frames == 2);
  CHECK(lan->counters().tx_errors == 1);
}

TEST_CASE("an output that had no room goes on with whole records when there is room, and lost frames are counted",
          "[iounit][savefile]") {
  const Folder folder;
  const std::string out = folder.file("out.pcap");
  std::vector<std::string> lines;
  os::Log log("test", {.write = [&](std::string_view line) { lines.emplace_back(line); }});
  auto lan = opened({.input = {}, .output = out}, {}, log);
  const auto send = [&](unsigned mark) {
    const bool sent = lan->send(frame_of(60, mark));
    lan->flush();
    return sent;
  };
  REQUIRE(send(1));
  constexpr std::size_t kFileHeader = 24;
  constexpr std::size_t kRecord = 16 + 60;
  REQUIRE(fs::file_size(out) == kFileHeader + kRecord);
  {
    const FileSizeLimit full(kFileHeader + 2 * kRecord - 10);
    for (const unsigned mark : {2U, 3U, 4U}) CHECK(lan->send(frame_of(60, mark)));
    lan->flush();
    // The second frame is cut and waits; the others are lost.
    CHECK(lan->counters().tx_frames == 1);
    CHECK(lan->counters().tx_lost == 2);
    CHECK(lan->counters().tx_errors == 2);
    CHECK_FALSE(send(5));
    CHECK(lan->counters().tx_errors == 3);
    CHECK(lan->counters().tx_lost == 2);
    CHECK(lan->next_deadline() == kStart + 10s);
    lan->poll(kStart + 10s);
    CHECK_FALSE(send(6));
    CHECK(lan->next_deadline() == kStart + 20s);
  }
  lan->poll(kStart + 20s - 1ns);
  CHECK_FALSE(send(7));
  lan->poll(kStart + 20s);
  CHECK(lan->counters().tx_frames == 2);
  CHECK(lan->next_deadline() == kNever);
  CHECK(send(8));
  CHECK(lan->counters().tx_frames == 3);
  CHECK(lan->counters().tx_errors == 5);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Catch::Contains("out.pcap: can't be written, trying again every 10 s: "));
  CHECK_THAT(lines[1], Catch::Contains("out.pcap: written again; 5 frames are missing"));
  lan.reset();

  auto reader = opened({.input = out, .output = {}, .pace_max = true, .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(reader->receive(sink, 100) == 3);
  CHECK(reader->counters().rx_truncated == 0);
  CHECK(sink.frames == std::vector<Frame>{frame_of(60, 1), frame_of(60, 2), frame_of(60, 8)});
}

TEST_CASE("an output without room for its header is refused", "[iounit][savefile]") {
  const Folder folder;
  const FileSizeLimit full(20);
  CHECK_THAT(refusal({.input = {}, .output = folder.file("out.pcap")}), Catch::Contains("File too large"));
}

TEST_CASE("frames that wait for the flush of an output take a limited amount of memory", "[iounit][savefile]") {
  const Folder folder;
  auto lan = opened({.input = {}, .output = folder.file("out.pcap")});
  for (unsigned number = 0; number < 100; ++number) REQUIRE(lan->send(frame_of(9000, number)));
  CHECK(fs::file_size(folder.file("out.pcap")) > 600'000);
}

TEST_CASE("what one savefile LAN writes another one plays", "[iounit][savefile]") {
  const Folder folder;
  auto writer = opened({.input = {}, .output = folder.file("a.pcap")});
  for (unsigned number = 0; number < 100; ++number) REQUIRE(writer->send(frame_of(60 + number * 90, number)));
  writer.reset();
  auto reader = opened({.input = folder.file("a.pcap"), .output = folder.file("b.pcap"), .wait_hosts = 0});
  CollectedFrames sink;
  CHECK(reader->receive(sink, 1000) == 100);
  REQUIRE(sink.frames.size() == 100);
  CHECK(sink.frames.back() == frame_of(60 + 99 * 90, 99));
  CHECK(reader->carrier());
  CHECK(reader->mtu() == 1500);
}

TEST_CASE("a LAN without an output counts what is sent", "[iounit][savefile]") {
  const Folder folder;
  { const CaptureWriter capture(folder.file("in.pcap")); }
  auto lan = opened({.input = folder.file("in.pcap"), .output = {}});
  CHECK(lan->send(frame_of(60, 1)));
  lan->flush();
  CHECK(lan->counters().tx_frames == 1);
}

TEST_CASE("an unusable savefile is refused with one clear line", "[iounit][savefile]") {
  const Folder folder;
  const std::string in = folder.file("in.pcap");
  CHECK_THAT(refusal({.input = in, .output = {}}), Catch::Contains("No such file"));
  CHECK_THAT(refusal({.input = folder.file(""), .output = {}}), Catch::Contains("not a regular file"));
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_THAT(refusal({.input = folder.file("pipe"), .output = {}}), Catch::Contains("not a regular file"));
  CHECK_THAT(refusal({.input = {}, .output = folder.file("pipe")}), Catch::Contains("can't write"));
  CHECK_THAT(refusal({.input = {}, .output = folder.file("none/out.pcap")}), Catch::Contains("No such file"));

  { std::ofstream(in) << "this is no capture at all, but it is long enough to hold a header"; }
  CHECK_THAT(refusal({.input = in, .output = {}}), Catch::Contains("not a usable capture"));
  { std::ofstream(in) << ""; }
  CHECK_THAT(refusal({.input = in, .output = {}}), Catch::Contains("not a usable capture"));
  { const CaptureWriter capture(in, kMicrosecondMagic, kRawIp); }
  CHECK_THAT(refusal({.input = in, .output = {}}), Catch::Contains("RAW frames, not Ethernet"));
  { const CaptureWriter capture(in); }
  CHECK_THAT(refusal({.input = in, .output = in}), Catch::Contains("read from and written to"));
  CHECK(fs::file_size(in) == 24);
}

}  // namespace
}  // namespace splitnic::iounit::savefile_lan_test
