#include "fabric/endnode/counter_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/os/errno_text.h"
#include "common/os/read_file.h"

namespace splitnic::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::array kKinds{"counters", "hw_counters"};
constexpr std::size_t kLongestNumber = 24;
constexpr std::size_t kLongestList = std::size_t{4} << 20U;  // of queue pairs, in a file
constexpr int kLastTries = 50;                               // milliseconds

std::string endnode_folder(const std::string& directory, LocalId id) {
  return fmt::format("{}/{}", endnodes_folder(directory), id.value);
}

/// With ports/1 and both folders in it, which is opened.
Result<os::UniqueFd> make_port(const std::string& folder) {
  const std::string port = folder + "/ports/1";
  for (const char* kind : kKinds) {
    std::error_code failed;
    fs::create_directories(fs::path(port) / kind, failed);
    if (failed) return fail("{}/{}: {}", port, kind, failed.message());
  }
  os::UniqueFd opened(::open(port.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) return fail("{}: {}", port, os::errno_text());
  return opened;
}

/// Numbers grow, so that each covers the one before it whole.
bool write_number(int file, std::uint64_t number) {
  const std::string text = fmt::format("{}\n", number);
  return ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

/// A file that is not there yet is made with its number, so that no reader finds it empty. Only one process at a time
/// makes files of a port.
os::UniqueFd open_number(int port, const char* kind, const std::string& name) {
  const std::string path = fmt::format("{}/{}", kind, name);
  os::UniqueFd file(::openat(port, path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file || errno != ENOENT) return file;
  constexpr const char* kNext = "next";
  file.reset(::openat(port, kNext, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file || !write_number(file.get(), 0) || ::renameat(port, kNext, port, path.c_str()) != 0) return {};
  return file;
}

/// 0 where there is none yet.
std::uint64_t read_number(int file) {
  std::array<char, kLongestNumber> text{};
  const ssize_t bytes = ::pread(file, text.data(), text.size(), 0);
  std::uint64_t number = 0;
  if (bytes > 0) std::from_chars(text.data(), text.data() + bytes, number);
  return number;
}

/// Whole, so that no reader sees half of it.
bool replace(const std::string& path, std::string_view text) {
  const std::string next = path + ".new";
  const os::UniqueFd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return false;
  return ::rename(next.c_str(), path.c_str()) == 0;
}

/// Calls change(kind, count, before) for each count that differs from `before`, and notes it there if that answers
/// true.
template <class Change>
void for_changes(const PortCounts& counts, PortCounts& before, Change&& change) {
  const std::array now{&counts.counters, &counts.hw_counters};
  const std::array then{&before.counters, &before.hw_counters};
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    for (std::size_t at = 0; at < now[kind]->size(); ++at) {
      const os::NamedCount& count = (*now[kind])[at];
      if (at == then[kind]->size()) then[kind]->push_back({count.name, 0});
      os::NamedCount& known = (*then[kind])[at];
      if (count.count != known.count && change(kKinds[kind], count, known.count)) known.count = count.count;
    }
  }
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const auto text = os::read_file(path, kLongestList);
  std::size_t from = 0;
  while (text && from < text->size()) {
    const std::size_t end = std::min(text->find('\n', from), text->size());
    lines.push_back(text->substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

/// On a fabric of several users, a killed process of this user may have left the folder of an ID that a process of
/// another user holds now.
bool is_of_another_user(const fs::path& folder, pid_t holder) {
  struct stat counted {};
  struct stat process {};
  return ::stat(folder.c_str(), &counted) == 0 && ::stat(fmt::format("/proc/{}", holder).c_str(), &process) == 0 &&
         counted.st_uid != process.st_uid;
}

std::vector<os::NamedCount> numbers_in(const fs::path& folder) {
  std::vector<os::NamedCount> numbers;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const os::UniqueFd file(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file) numbers.push_back({entry->path().filename().string(), read_number(file.get())});
  }
  std::ranges::sort(numbers, {}, &os::NamedCount::name);
  return numbers;
}

}  // namespace

std::string endnodes_folder(const std::string& directory) { return directory + "/endnodes"; }

Result<CounterFiles> CounterFiles::open(const std::string& directory, LocalId own, std::string_view device,
                                        std::string_view process) {
  remove_counter_files(directory, own);
  const std::string folder = endnode_folder(directory, own);
  auto port = make_port(folder);
  if (!port) return tl::unexpected(port.error());
  auto sums = make_port(fmt::format("{}/sysfs/class/infiniband/{}", directory, device));
  if (!sums) return tl::unexpected(sums.error());
  if (!replace(folder + "/process", process) || !replace(folder + "/queue_pairs", "")) {
    return fail("{}: {}", folder, os::errno_text());
  }
  return CounterFiles(folder, std::move(*port), std::move(*sums));
}

CounterFiles::CounterFiles(std::string folder, os::UniqueFd own, os::UniqueFd sums)
    : folder_(std::move(folder)), own_(std::move(own)), sums_(std::move(sums)) {}

CounterFiles::CounterFiles(CounterFiles&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      own_(std::move(other.own_)),
      sums_(std::move(other.sums_)),
      written_(std::move(other.written_)),
      added_(std::move(other.added_)),
      queue_pairs_(std::move(other.queue_pairs_)) {}

CounterFiles::~CounterFiles() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void CounterFiles::publish(const PortCounts& counts, std::string_view queue_pairs, bool last) {
  const bool first = written_.counters.empty();
  const auto write = [&](const char* kind, const os::NamedCount& count, std::uint64_t) {
    const os::UniqueFd file = open_number(own_.get(), kind, count.name);
    return file && write_number(file.get(), count.count);
  };
  for_changes(counts, written_, write);
  if (first) {  // also those that are 0
    for (const auto& count : counts.counters) static_cast<void>(write(kKinds[0], count, 0));
    for (const auto& count : counts.hw_counters) static_cast<void>(write(kKinds[1], count, 0));
  }
  if (queue_pairs != queue_pairs_ && replace(folder_ + "/queue_pairs", queue_pairs)) queue_pairs_ = queue_pairs;
  add_to_sums(counts, last);
}

/// A process that is stopped while it has the lock must not stop this one.
void CounterFiles::add_to_sums(const PortCounts& counts, bool last) {
  const bool first = added_.counters.empty();
  if (!first && counts == added_) return;
  bool locked = ::flock(sums_.get(), LOCK_EX | LOCK_NB) == 0;
  for (int tries = 0; !locked && last && tries < kLastTries; ++tries) {
    ::poll(nullptr, 0, 1);
    locked = ::flock(sums_.get(), LOCK_EX | LOCK_NB) == 0;
  }
  if (!locked) return;
  const auto add = [&](const char* kind, const os::NamedCount& count, std::uint64_t before) {
    const os::UniqueFd file = open_number(sums_.get(), kind, count.name);
    return file && write_number(file.get(), read_number(file.get()) + (count.count - before));
  };
  for_changes(counts, added_, add);
  if (first) {  // those that nobody has counted yet
    for (const auto& count : counts.counters) static_cast<void>(add(kKinds[0], count, count.count));
    for (const auto& count : counts.hw_counters) static_cast<void>(add(kKinds[1], count, count.count));
  }
  ::flock(sums_.get(), LOCK_UN);
}

std::vector<EndnodeReport> read_endnodes(const std::string& directory, const LocalIds& ids) {
  std::vector<EndnodeReport> reports;
  for (const LocalIds::Holder& holder : ids.holders()) {
    const fs::path folder = endnode_folder(directory, holder.id);
    EndnodeReport report;
    report.id = holder.id;
    report.process = lines_of((folder / "process").string());
    if (report.process.empty()) continue;  // it is being opened, or closed
    if (is_of_another_user(folder, holder.pid)) continue;
    report.queue_pairs = lines_of((folder / "queue_pairs").string());
    report.counts.counters = numbers_in(folder / "ports/1/counters");
    report.counts.hw_counters = numbers_in(folder / "ports/1/hw_counters");
    std::error_code failed;
    const auto opened = fs::last_write_time(folder / "process", failed);
    if (!failed) {
      const auto age = fs::file_time_type::clock::now() - opened;
      report.open_ms = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(age).count(), 0);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void remove_counter_files(const std::string& directory, LocalId id) {
  std::error_code ignored;
  fs::remove_all(endnode_folder(directory, id), ignored);
}

}  // namespace splitnic::fabric
