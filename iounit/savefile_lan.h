#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/os/log.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "common/time.h"
#include "iounit/lan_engine.h"
#include "iounit/lan_spec.h"

struct pcap;
struct pcap_dumper;

namespace splitnic::iounit {

/// A LAN made of capture files. It plays one (pcap or pcapng, Ethernet) and records into another (pcap, nanosecond
/// timestamps). Playback starts when the configured number of sessions is up. A frame is due as long after that as it
/// was captured after the file's first frame. rx_truncated counts incomplete records and a file that ends too early.
/// While the output can't be written (a full disk), the engine refuses frames and tries again every kRetryInterval. The
/// file then goes on with whole records.
class SavefileLan final : public LanEngine {
 public:
  static constexpr std::chrono::seconds kRetryInterval{10};

  /// log: must outlive the engine. Errors: a file that can't be opened or isn't a capture, a link type other than
  /// Ethernet, an output without room for its header, the same file as input and output.
  [[nodiscard]] static Result<std::unique_ptr<SavefileLan>> open(const SavefileSpec& spec, Time now,
                                                                 Duration wall_at_zero, os::Log& log);
  ~SavefileLan() override;

  std::size_t receive(LanSink& sink, std::size_t budget) override;
  bool send(std::span<const std::byte> frame) override;
  void flush() override;
  void poll(Time now) override;
  [[nodiscard]] Time next_deadline() const override;
  [[nodiscard]] bool carrier() const override { return true; }
  [[nodiscard]] std::uint32_t mtu() const override { return spec_.mtu; }
  void on_sessions(std::size_t sessions, Time now) override;
  [[nodiscard]] const LanCounters& counters() const override { return counters_; }
  void collect_descriptors(std::vector<int>& /*out*/) const override {}
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::string_view engine() const override { return "savefile"; }

  /// Whether the engine has delivered the input's last frame (true without an input).
  [[nodiscard]] bool played() const { return input_ == nullptr; }

 private:
  struct CloseInput {
    void operator()(pcap* input) const;
  };
  struct CloseOutput {
    void operator()(pcap_dumper* output) const;
  };
  struct Record {
    std::span<const std::byte> frame;  ///< libpcap's memory, valid until the next record is read
    Duration since_first;
  };

  SavefileLan(SavefileSpec spec, Time now, Duration wall_at_zero, os::Log& log)
      : spec_(std::move(spec)), now_(now), wall_at_zero_(wall_at_zero), log_(log) {}
  [[nodiscard]] std::optional<Error> open_input();
  [[nodiscard]] std::optional<Error> open_output();
  void write_collected();
  bool read_next();
  void end_input(const std::string& why);
  [[nodiscard]] Time due(const Record& record) const;

  SavefileSpec spec_;
  Time now_;
  Duration wall_at_zero_;
  os::Log& log_;
  std::unique_ptr<pcap, CloseInput> input_;
  std::unique_ptr<pcap, CloseInput> output_format_;
  // The output's records as libpcap has formatted them, and where each of them ends. flush() writes them.
  std::vector<char> collected_;
  std::vector<std::size_t> record_ends_;
  os::UniqueFd output_file_;
  std::unique_ptr<pcap_dumper, CloseOutput> output_;  // appends to collected_
  std::optional<Time> started_;
  std::optional<Duration> first_stamp_;
  std::optional<Record> next_;
  Time retry_at_ = kNever;     // set while the output can't be written
  std::uint64_t missing_ = 0;  // frames that the output lacks since it could last be written
  LanCounters counters_;
};

}  // namespace splitnic::iounit
