// Counters of an opened device, for tools that read files.
#include "fabric/ibverbs/counters.h"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/describe/members.hpp>
#include <boost/mp11/algorithm.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "common/os/errno_text.h"
#include "common/os/read_file.h"
#include "common/os/timespec.h"
#include "fabric/ibverbs/names.h"
#include "fabric/ibverbs/objects.h"

namespace splitnic::ibverbs {
namespace {

using fabric::AdapterCounters;
using fabric::PortCounts;

/// Names that the kernel's software device (rxe) has for the same counts. The others have ours.
constexpr std::array kKnownNames{
    std::pair(std::string_view("cells_sent"), std::string_view("sent_pkts")),
    std::pair(std::string_view("cells_received"), std::string_view("rcvd_pkts")),
    std::pair(std::string_view("dropped_duplicate"), std::string_view("duplicate_request")),
    std::pair(std::string_view("dropped_out_of_sequence"), std::string_view("out_of_seq_request")),
    std::pair(std::string_view("not_ready_sent"), std::string_view("send_rnr_err")),
    std::pair(std::string_view("not_ready_received"), std::string_view("rcvd_rnr_err")),
    std::pair(std::string_view("sequence_errors_received"), std::string_view("rcvd_seq_err")),
    std::pair(std::string_view("retries_exceeded"), std::string_view("retry_exceeded_err")),
    std::pair(std::string_view("not_ready_exceeded"), std::string_view("retry_rnr_exceeded_err")),
};

std::string file_name(std::string_view name) {
  const auto known = std::ranges::find(kKnownNames, name, [](const auto& one) { return one.first; });
  return std::string(known == kKnownNames.end() ? name : known->second);
}

template <class Counts>
void append(std::vector<os::NamedCount>& to, const Counts& counts, std::string_view prefix = {}) {
  using Members = boost::describe::describe_members<Counts, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto member) {
    to.push_back({std::string(prefix) + file_name(member.name), counts.*member.pointer});
  });
}

/// Those of every InfiniBand port that have a meaning here; the unit of data is four bytes. Source: InfiniBand,
/// PortCounters; the kernel's sysfs-class-infiniband.
std::vector<os::NamedCount> port_counters(const AdapterCounters& adapter) {
  constexpr std::uint64_t kUnit = 4;
  return {
      {"port_xmit_data", adapter.bytes_sent / kUnit},
      {"port_rcv_data", adapter.bytes_received / kUnit},
      {"port_xmit_packets", adapter.cells_sent},
      {"port_rcv_packets", adapter.cells_received},
      {"port_rcv_errors", adapter.dropped_bad_cell},
      {"port_xmit_discards", adapter.dropped_datagram_no_path + adapter.dropped_datagram_no_room},
  };
}

PortCounts collect(Context& context) {
  AdapterCounters adapter;
  fabric::FaultCounters faults;
  context.adapter->use([&](fabric::ChannelAdapter& used) {
    adapter = used.counters();
    if (context.faults != nullptr) faults = context.faults->counters();
  });
  PortCounts counts;
  counts.counters = port_counters(adapter);
  append(counts.hw_counters, adapter);
  append(counts.hw_counters, context.peers->counters());
  append(counts.hw_counters, context.groups->counters(), "group_");
  append(counts.hw_counters, faults, "fault_");
  return counts;
}

const char* type_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_XRC_SEND:
      return "XRC_SEND";
    case IBV_QPT_XRC_RECV:
      return "XRC_RECV";
    default:
      return "?";
  }
}

const char* name_of(fabric::QueuePairState state) {
  static constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string line_of(const QueuePair& queue_pair, const fabric::QueuePairCounts& counts) {
  const ibv_qp& qp = queue_pair.qp.qp_base;
  const ibv_qp_attr& attributes = queue_pair.connection->attributes;
  return fmt::format(
      "{} {} {} peer_lid {} peer_qp {} requests_posted {} requests_completed {} receives_posted {} receives_taken {} "
      "reads_answered {} retransmissions {}\n",
      qp.qp_num, type_of(qp.qp_type), name_of(counts.state), attributes.ah_attr.dlid, attributes.dest_qp_num,
      counts.requests_posted, counts.requests_completed, counts.receives_posted, counts.receives_taken,
      counts.reads_answered, counts.retransmissions);
}

/// For people and tools: which process this is.
std::string process_text(unsigned device) {
  const auto name = os::read_file("/proc/self/comm", 64);
  return fmt::format("pid {}\nprogram {}device {}\nversion {}\n", ::getpid(), name ? *name : "?\n", device,
                     SPLITNIC_VERSION);
}

}  // namespace

Result<std::unique_ptr<Counters>> Counters::open(Context& context) {
  auto files = fabric::CounterFiles::open(context.peers->own_directory(), fabric::LocalId{context.peers->local_id()},
                                          kDeviceName, process_text(context.ordinal));
  if (!files) return tl::unexpected(files.error());
  os::UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) return fail("no timer: {}", os::errno_text());
  std::unique_ptr<Counters> counters(new Counters(context, std::move(*files), std::move(timer)));
  counters->publish(false);
  auto watched = context.adapter->watch(counters->timer_.get(), [self = counters.get()] { self->publish_in_time(); });
  if (!watched) return tl::unexpected(watched.error());
  counters->watch_ = *watched;
  counters->set_timer();
  return counters;
}

Counters::Counters(Context& context, fabric::CounterFiles files, os::UniqueFd timer)
    : context_(context), files_(std::move(files)), timer_(std::move(timer)) {}

Counters::~Counters() {
  if (watch_.value == 0) return;
  static_cast<void>(context_.adapter->unwatch(watch_));
  publish(true);
}

void Counters::set_timer() {
  itimerspec when{};
  when.it_value = os::timespec_of(interval_);
  timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void Counters::publish_in_time() {
  interval_ = publish(false) ? kIntervalMin : std::min(2 * interval_, kIntervalMax);
  set_timer();  // which also makes the descriptor unreadable
}

bool Counters::publish(bool last) {
  PortCounts counts = collect(context_);
  std::string lines = queue_pairs();
  const bool changed = counts != before_ || lines != lines_before_;
  files_.publish(counts, lines, last);  // also what could not be written the last time
  before_ = std::move(counts);
  lines_before_ = std::move(lines);
  return changed;
}

/// The adapter's lock is given back now and then, because a device may have thousands of queue pairs.
std::string Counters::queue_pairs() {
  constexpr std::size_t kAtOnce = 64;
  const std::lock_guard guard(context_.lock);
  std::vector<QueuePair*> all;
  for (const auto& [number, queue_pair] : context_.objects.queue_pairs) all.push_back(queue_pair);
  std::ranges::sort(all, {}, [](const QueuePair* one) { return one->number; });
  std::vector<std::optional<fabric::QueuePairCounts>> counts(all.size());
  for (std::size_t from = 0; from < all.size(); from += kAtOnce) {
    context_.adapter->use([&](fabric::ChannelAdapter& adapter) {
      for (std::size_t at = from; at < std::min(all.size(), from + kAtOnce); ++at) {
        counts[at] = adapter.counts(all[at]->number);
      }
    });
  }
  std::string lines;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (counts[at]) lines += line_of(*all[at], *counts[at]);
  }
  return lines;
}

}  // namespace splitnic::ibverbs
