// `splitnic-bench verbs`: a program on the C verbs between two processes, beside UCX, libfabric and the C++ verbs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "bench/commands.h"
#include "bench/fabric/peer_process.h"
#include "bench/fabric/run.h"
#include "bench/machine.h"
#include "bench/programs.h"
#include "bench/verbs/table.h"
#include "common/result.h"

namespace splitnic::bench {

namespace {

constexpr std::uint32_t kRequestsOfList = 32;

/// The programs of the table that run.
class Programs {
 public:
  Programs(std::string folder, const Cores& cores, VerbsTable& table)
      : folder_(std::move(folder)), cores_(cores), table_(table) {}

  /// Nothing: the program is not there, or has failed; then the table says so.
  std::optional<Figures> measure(const std::string& program, const PeerTask& task, Duration length) {
    PeerProcess* peer = running(program);
    if (peer == nullptr) return std::nullopt;
    auto figures = peer->measure(task, length);
    if (figures) return *figures;
    skip(program, figures.error().message);
    return std::nullopt;
  }

 private:
  PeerProcess* running(const std::string& program) {
    const auto known = running_.find(program);
    if (known != running_.end()) return known->second ? &*known->second : nullptr;
    auto started = PeerProcess::start(folder_ + "/" + program, cores_, table_.realtime);
    if (!started) {
      skip(program, started.error().message);
      return nullptr;
    }
    return &*running_.emplace(program, std::move(*started)).first->second;
  }
  void skip(const std::string& program, const std::string& reason) {
    running_.erase(program);
    running_.emplace(program, std::nullopt);
    table_.skipped.push_back({program, reason});
  }

  std::string folder_;
  Cores cores_;
  VerbsTable& table_;
  std::map<std::string, std::optional<PeerProcess>> running_;
};

/// Of the C++ verbs, which are not a program of their own.
Result<Figures> measure_cpp(const VerbsRow& row, const VerbsTable& table, const Cores& cores, Duration length) {
  Measurement what;
  what.quantity = row.unit == Unit::microseconds ? Quantity::latency : Quantity::rate;
  what.verb = Verb::send;
  what.path = Path::segmented;
  what.bytes = row.bytes;
  return run_measurement(what, EndOptions{}, cores, table.realtime, length);
}

Result<void> take_sample(VerbsTable& table, Programs& programs, LineGauge& gauge, const Cores& cores, std::size_t index,
                         std::size_t contestant, Duration length) {
  const VerbsRow& row = verbs_rows()[index];
  const VerbsContestant& who = row.contestants[contestant];
  const auto before = gauge.measure();
  if (!before) return tl::unexpected(before.error());
  std::optional<Figures> figures;
  if (*who.program == 0) {
    const auto measured = measure_cpp(row, table, cores, length);
    if (!measured) return tl::unexpected(measured.error());
    figures = *measured;
  } else {
    const bool alone = std::string_view(who.kind) == "latency";
    figures = programs.measure(who.program, {who.operation, who.kind, row.bytes, alone ? 1 : kRequestsOfList}, length);
  }
  if (!figures) return {};
  const auto after = gauge.measure();
  if (!after) return tl::unexpected(after.error());
  if (placement_of(*before) != placement_of(*after)) {
    ++table.moved;
    return {};
  }
  const double value = row.unit == Unit::microseconds ? figures->median * 1e6 : figures->per_second * row.bytes * 1e-9;
  table.samples.push_back({index, contestant, value, *before});
  return {};
}

Result<void> measure_table(VerbsTable& table, const VerbsCommand& command, const std::string& peers,
                           const Cores& cores) {
  const RaisedPriority priority(cores);
  table.realtime = priority.raised();
  table.unfit = unfit_to_judge(table.machine.load, table.realtime);
  auto gauge = LineGauge::start(cores);
  if (!gauge) return tl::unexpected(gauge.error());
  Programs programs(peers, cores, table);
  const auto length = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(command.seconds));
  for (std::size_t round = 0; round < command.rounds; ++round) {
    fmt::print(stderr, "round {} of {}\n", round + 1, command.rounds);
    for (const std::size_t row : table.rows) {
      for (std::size_t who = 0; who < verbs_rows()[row].contestants.size(); ++who) {
        auto taken = take_sample(table, programs, *gauge, cores, row, who, length);
        if (!taken) return taken;
      }
    }
  }
  return {};
}

}  // namespace

int run_verbs_command(const VerbsCommand& command) {
  const std::string peers = peers_folder(command.peers);
  const Cores cores = choose_cores();
  if (!cores.apart()) throw StartupError{"the two processes of each program need a core each"};
  VerbsTable table;
  table.version = SPLITNIC_VERSION;
  table.machine = describe_machine();
  table.rounds = command.rounds;
  for (std::size_t row = 0; row < verbs_rows().size(); ++row) {
    const bool asked =
        command.rows.empty() || std::ranges::find(command.rows, verbs_rows()[row].key) != command.rows.end();
    if (asked) table.rows.push_back(row);
  }
  if (auto measured = measure_table(table, command, peers, cores); !measured) {
    fmt::print(stderr, "splitnic-bench: {}\n", measured.error().message);
    return 1;
  }
  fmt::print("{}\n", command.json ? to_json(table) : to_text(table));
  return 0;
}

}  // namespace splitnic::bench
