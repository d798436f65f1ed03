#include "iounit/savefile_lan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "common/frame/ethernet.h"
#include "common/os/errno_text.h"
#include "common/os/message_io.h"
#include "common/os/unique_fd.h"
#include "iounit/libpcap.h"

namespace splitnic::iounit {
namespace {

/// The value that tcpdump and Wireshark write; this program handles no longer frame.
constexpr int kSnapBytes = 262144;

/// Converts to a Duration, limited to what can be added to a Time: a file's timestamps may have any value.
Duration stamp_of(const pcap_pkthdr& header) {
  constexpr std::int64_t kMostSeconds = std::numeric_limits<std::int64_t>::max() / 1'000'000'000 / 4;
  const std::int64_t seconds = std::clamp<std::int64_t>(header.ts.tv_sec, 0, kMostSeconds);
  const std::int64_t nanoseconds = std::clamp<std::int64_t>(header.ts.tv_usec, 0, 999'999'999);
  return std::chrono::seconds{seconds} + std::chrono::nanoseconds{nanoseconds};
}

/// What an output collects at most before it is written.
constexpr std::size_t kMaxCollectedBytes = std::size_t{256} << 10U;

/// A stream that appends to these bytes, which must outlive it. A stream of the C library's own forgets what it could
/// not write, records in part among it.
std::FILE* stream_to(std::vector<char>& bytes) {
  const auto write = [](void* to, const char* from, std::size_t count) {
    auto& all = *static_cast<std::vector<char>*>(to);
    all.insert(all.end(), from, from + count);
    return static_cast<ssize_t>(count);
  };
  std::FILE* stream = ::fopencookie(&bytes, "wb", {nullptr, write, nullptr, nullptr});
  if (stream != nullptr) std::setvbuf(stream, nullptr, _IONBF, 0);
  return stream;
}

/// Returns how many of the bytes the file takes. Fewer than all: errno says why.
std::size_t write_now(int file, std::span<const char> bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const auto rest = bytes.subspan(written);
    const ssize_t taken = ::write(file, rest.data(), rest.size());
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) break;
    written += static_cast<std::size_t>(taken);
  }
  return written;
}

/// A stream that reads with the one call that the sandbox permits for it.
std::FILE* stream_of(os::UniqueFd file) {
  auto cookie = std::make_unique<os::UniqueFd>(std::move(file));
  const auto read = [](void* of, char* to, std::size_t bytes) {
    return os::read_some(static_cast<os::UniqueFd*>(of)->get(), std::as_writable_bytes(std::span(to, bytes)));
  };
  const auto close = [](void* of) {
    const std::unique_ptr<os::UniqueFd> ended(static_cast<os::UniqueFd*>(of));
    return 0;
  };
  std::FILE* stream = ::fopencookie(cookie.get(), "rb", {read, nullptr, nullptr, close});
  if (stream != nullptr) static_cast<void>(cookie.release());
  return stream;
}

}  // namespace

void SavefileLan::CloseInput::operator()(pcap* input) const { Libpcap::get().close(input); }
void SavefileLan::CloseOutput::operator()(pcap_dumper* output) const { Libpcap::get().dump_close(output); }

SavefileLan::~SavefileLan() { flush(); }

Result<std::unique_ptr<SavefileLan>> SavefileLan::open(const SavefileSpec& spec, Time now, Duration wall_at_zero,
                                                       os::Log& log) {
  if (auto library = Libpcap::load(); !library) return tl::unexpected(library.error());
  std::unique_ptr<SavefileLan> lan(new SavefileLan(spec, now, wall_at_zero, log));
  if (!spec.input.empty()) {
    if (auto error = lan->open_input()) return tl::unexpected(*std::move(error));
  }
  if (!spec.output.empty()) {
    if (auto error = lan->open_output()) return tl::unexpected(*std::move(error));
  }
  lan->on_sessions(0, now);
  return lan;
}

std::optional<Error> SavefileLan::open_input() {
  // O_NONBLOCK: a named pipe without a writer must not block the start.
  os::UniqueFd fd(::open(spec_.input.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return Error{fmt::format("can't read the LAN file {}: {}", spec_.input, os::errno_text())};
  struct stat status {};
  const bool regular = ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode);
  std::FILE* file = regular ? stream_of(std::move(fd)) : nullptr;
  if (file == nullptr) {
    return Error{fmt::format("the LAN file {} is not a regular file", spec_.input)};
  }
  char reason[PCAP_ERRBUF_SIZE] = "";
  pcap_t* input = Libpcap::get().fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, reason);
  if (input == nullptr) {
    std::fclose(file);
    return Error{fmt::format("the LAN file {} is not a usable capture: {}", spec_.input, reason)};
  }
  input_.reset(input);
  const int link_type = Libpcap::get().datalink(input);
  if (link_type != DLT_EN10MB) {
    const char* name = Libpcap::get().datalink_val_to_name(link_type);
    return Error{fmt::format("the LAN file {} holds {} frames, not Ethernet", spec_.input,
                             name != nullptr ? name : std::to_string(link_type))};
  }
  return std::nullopt;
}

std::optional<Error> SavefileLan::open_output() {
  const auto refused = [this] {
    return Error{fmt::format("can't write the LAN file {}: {}", spec_.output, os::errno_text())};
  };
  output_file_.reset(::open(spec_.output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!output_file_) return refused();
  struct stat output {};
  struct stat input {};
  const bool regular = ::fstat(output_file_.get(), &output) == 0 && S_ISREG(output.st_mode);
  if (!regular) return Error{fmt::format("the LAN file {} is not a regular file", spec_.output)};
  const bool same = !spec_.input.empty() && ::stat(spec_.input.c_str(), &input) == 0 && input.st_dev == output.st_dev &&
                    input.st_ino == output.st_ino;
  if (same) return Error{fmt::format("the LAN would be read from and written to {}", spec_.output)};
  if (::ftruncate(output_file_.get(), 0) != 0) return refused();
  output_format_.reset(
      Libpcap::get().open_dead_with_tstamp_precision(DLT_EN10MB, kSnapBytes, PCAP_TSTAMP_PRECISION_NANO));
  std::FILE* stream = output_format_ != nullptr ? stream_to(collected_) : nullptr;
  if (stream != nullptr) output_.reset(Libpcap::get().dump_fopen(output_format_.get(), stream));
  if (output_ == nullptr) return Error{fmt::format("can't write the LAN file {}", spec_.output)};
  // The file's header.
  if (write_now(output_file_.get(), collected_) != collected_.size()) return refused();
  collected_.clear();
  return std::nullopt;
}

void SavefileLan::on_sessions(std::size_t sessions, Time now) {
  if (!started_ && sessions >= spec_.wait_hosts) started_ = now;
}

Time SavefileLan::due(const Record& record) const {
  return spec_.pace_max ? *started_ : *started_ + record.since_first;
}

std::size_t SavefileLan::receive(LanSink& sink, std::size_t budget) {
  if (!started_) return 0;
  std::size_t handed = 0;
  for (std::size_t records = 0; records < budget; ++records) {
    if (!next_ && !read_next()) {
      if (input_ == nullptr) break;
      continue;
    }
    if (due(*next_) > now_) break;
    ++counters_.rx_frames;
    ++handed;
    sink.on_lan_frame(next_->frame);
    next_.reset();
  }
  return handed;
}

/// False: the record was unusable, or the file has ended (input_ is then null).
bool SavefileLan::read_next() {
  if (input_ == nullptr) return false;
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  const int result = Libpcap::get().next_ex(input_.get(), &header, &bytes);
  if (result == PCAP_ERROR_BREAK) {
    end_input("");
    return false;
  }
  if (result != 1) {
    ++counters_.rx_truncated;
    end_input(Libpcap::get().geterr(input_.get()));
    return false;
  }
  const Duration stamp = stamp_of(*header);
  if (!first_stamp_) first_stamp_ = stamp;
  if (header->caplen < header->len || header->caplen < frame::kEthernetHeaderBytes) {
    ++counters_.rx_truncated;
    return false;
  }
  next_ = Record{std::as_bytes(std::span(bytes, header->caplen)), stamp - *first_stamp_};
  return true;
}

void SavefileLan::end_input(const std::string& why) {
  if (!why.empty()) log_.warning("LAN file {}: playback ends early: {}", spec_.input, why);
  log_.info("LAN file {}: played {} frames, skipped {} truncated ones", spec_.input, counters_.rx_frames,
            counters_.rx_truncated);
  input_.reset();
}

bool SavefileLan::send(std::span<const std::byte> frame) {
  if (frame.size() < frame::kEthernetHeaderBytes || frame.size() > kSnapBytes) {
    ++counters_.tx_errors;
    return false;
  }
  if (output_ == nullptr) {
    ++counters_.tx_frames;
    return true;
  }
  if (retry_at_ != kNever) {
    ++counters_.tx_errors;
    ++missing_;
    return false;
  }
  const Duration stamp = now_.time_since_epoch() + wall_at_zero_;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(stamp);
  pcap_pkthdr header{};
  header.ts.tv_sec = seconds.count();
  header.ts.tv_usec = (stamp - seconds).count();  // nanoseconds, as the file's header declares
  header.caplen = header.len = static_cast<bpf_u_int32>(frame.size());
  Libpcap::get().dump(reinterpret_cast<u_char*>(output_.get()), &header, reinterpret_cast<const u_char*>(frame.data()));
  record_ends_.push_back(collected_.size());
  if (collected_.size() >= kMaxCollectedBytes) flush();
  return true;
}

void SavefileLan::flush() {
  if (!collected_.empty() && retry_at_ == kNever) write_collected();
}

void SavefileLan::poll(Time now) {
  now_ = now;
  if (now >= retry_at_) write_collected();
}

/// Of what can't be written, the first record that is not whole in the file is kept for the next attempt. The others
/// are lost.
void SavefileLan::write_collected() {
  const std::size_t written = write_now(output_file_.get(), collected_);
  const int error = errno;
  const auto first_cut = std::ranges::upper_bound(record_ends_, written);
  counters_.tx_frames += static_cast<std::uint64_t>(first_cut - record_ends_.begin());
  if (first_cut == record_ends_.end()) {
    collected_.clear();
    record_ends_.clear();
    if (std::exchange(retry_at_, kNever) == kNever) return;
    log_.info("LAN file {}: written again; {} frames are missing", spec_.output, std::exchange(missing_, 0));
    return;
  }
  const auto lost = static_cast<std::uint64_t>(record_ends_.end() - first_cut - 1);
  counters_.tx_errors += lost;
  counters_.tx_lost += lost;
  missing_ += lost;
  collected_.resize(*first_cut);
  collected_.erase(collected_.begin(), collected_.begin() + static_cast<std::ptrdiff_t>(written));
  record_ends_.assign(1, collected_.size());
  retry_at_ = now_ + kRetryInterval;
  log_.recurring(os::LogLevel::kWarning,
                 fmt::format("LAN file {}: can't be written, trying again every {} s: {}", spec_.output,
                             kRetryInterval.count(), os::errno_text(error)),
                 name());
}

Time SavefileLan::next_deadline() const {
  if (!started_ || input_ == nullptr) return retry_at_;
  return std::min(retry_at_, next_ ? due(*next_) : *started_);
}

std::string SavefileLan::name() const { return fmt::format("file:{},{}", spec_.input, spec_.output); }

}  // namespace splitnic::iounit
