#include "fabric/faults/fault_plan.h"

#include <fmt/format.h>

#include <chrono>

#include "common/random.h"

namespace splitnic::fabric {
namespace {

/// No request is sent again when so many have been posted after it: no send queue is deeper.
constexpr std::uint64_t kHitsKept = 65536;

const char* opcode_of(Operation operation) {
  switch (operation) {
    case Operation::send:
      return "SEND";
    case Operation::send_with_immediate:
      return "SEND_WITH_IMM";
    case Operation::rdma_write:
      return "RDMA_WRITE";
    case Operation::rdma_write_with_immediate:
      return "RDMA_WRITE_WITH_IMM";
    case Operation::send_with_invalidate:
      return "SEND_WITH_INV";
    case Operation::rdma_read:
      return "RDMA_READ";
    case Operation::compare_swap:
      return "ATOMIC_CMP_AND_SWP";
    case Operation::fetch_add:
      return "ATOMIC_FETCH_AND_ADD";
    case Operation::bind_window:
      return "BIND_MW";
    case Operation::local_invalidate:
      return "LOCAL_INV";
    case Operation::register_memory:
    case Operation::delay:
      break;
  }
  return to_string(operation);
}

/// Of a message that came in: its first cell says no more.
const char* opcode_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::write:
      return "RDMA_WRITE";
    case MessageKind::read_request:
      return "RDMA_READ";
    case MessageKind::atomic:
      return "ATOMIC";
    default:
      return "SEND";
  }
}

}  // namespace

FaultPlan::State* FaultPlan::find(QpNumber queue_pair) {
  const auto found = queue_pairs_.find(queue_pair.value);
  return found == queue_pairs_.end() ? nullptr : &found->second;
}

bool FaultPlan::draw(unsigned permille, Kind kind, std::initializer_list<std::uint64_t> what) const {
  if (permille == 0) return false;
  std::uint64_t key = SeededRandom(options_.faults.seed).next();
  key = SeededRandom(key ^ static_cast<std::uint64_t>(kind)).next();
  key = SeededRandom(key ^ options_.device).next();
  for (const std::uint64_t word : what) key = SeededRandom(key ^ word).next();
  return SeededRandom(key).below(1000) < permille;
}

RequestTurn FaultPlan::turn(const SendingRequest& request) {
  State* state = find(request.queue_pair);
  if (state == nullptr || request.position < state->turns) return {};
  const std::uint64_t number = state->turns = request.position + 1;
  const FaultSpecification& faults = options_.faults;
  if (number == faults.cq_error) {
    ++counters_.cq_error;
    options_.log(line("cq-error", *state, request) + fmt::format(" status={}", name_of(faults.cq_status)));
    return {.what = RequestTurn::What::fail, .status = faults.cq_status};
  }
  if (number == faults.kill_peer && !killed_) return kill(*state, request);
  if (!draw(faults.delay_permille, Kind::delay, {state->ordinal, number})) return {};
  const auto waits = std::chrono::duration_cast<std::chrono::microseconds>(faults.delay);
  ++counters_.delay;
  options_.log(line("delay", *state, request) + fmt::format(" us={}", waits.count()));
  return {.what = RequestTurn::What::hold, .until = options_.clock() + faults.delay};
}

RequestTurn FaultPlan::kill(State& state, const SendingRequest& request) {
  // Datagrams go to any peer: those to this one are lost when its path is down.
  if (request.datagram && request.path.value == 0) return {};
  killed_ = true;
  ++counters_.kill_peer;
  options_.log(line("kill-peer", state, request));
  const bool dies = options_.kill_peer(request.path);
  state.cut = dies && !request.datagram;
  if (dies || request.datagram) return {};
  return {.what = RequestTurn::What::fail, .status = CompletionStatus::retry_exceeded};
}

unsigned FaultPlan::hit(State& state, unsigned permille, Kind kind, std::uint64_t position, std::uint16_t cell) {
  if (permille == 0) return 0;
  const std::tuple at(position, cell, kind);
  const auto before = state.hits.find(at);
  const unsigned times = before == state.hits.end() ? 0 : before->second;
  if (!draw(permille, kind, {state.ordinal, position, cell, times})) return 0;
  if (position > kHitsKept) {
    state.hits.erase(state.hits.begin(), state.hits.lower_bound({position - kHitsKept, std::uint16_t{0}, Kind{}}));
  }
  return state.hits[at] = times + 1;
}

bool FaultPlan::loses(const SendingRequest& request, std::uint16_t cell) {
  State* state = find(request.queue_pair);
  if (state == nullptr) return false;
  if (state->cut) return true;
  const unsigned times = hit(*state, options_.faults.drop_permille, Kind::drop, request.position, cell);
  if (times == 0) return false;
  ++counters_.drop;
  options_.log(line("drop", *state, request) + fmt::format(" cell={} time={}", cell, times));
  return true;
}

bool FaultPlan::duplicates(const SendingRequest& request, std::uint16_t cell) {
  State* state = find(request.queue_pair);
  if (state == nullptr) return false;
  // Only once: whether the cell is sent again may depend on timing.
  if (state->hits.contains({request.position, cell, Kind::duplicate})) return false;
  if (hit(*state, options_.faults.duplicate_permille, Kind::duplicate, request.position, cell) == 0) return false;
  ++counters_.duplicate;
  options_.log(line("duplicate", *state, request) + fmt::format(" cell={}", cell));
  return true;
}

bool FaultPlan::loses_answer(const SendingRequest& request) {
  State* state = find(request.queue_pair);
  if (state == nullptr) return false;
  const unsigned times = hit(*state, options_.faults.lost_ack_permille, Kind::lost_ack, request.position, 0);
  if (times == 0) return false;
  ++counters_.lost_ack;
  options_.log(line("lost-ack", *state, request) + fmt::format(" time={}", times));
  return true;
}

/// A message is the one before, come again, or the next one.
void FaultPlan::note(State& state, const ArrivingMessage& message) {
  if (state.messages != 0 && state.psn == message.psn && message.kind != MessageKind::datagram) return;
  ++state.messages;
  state.psn = message.psn;
  state.damaged = state.refused = 0;
}

bool FaultPlan::damages(const ArrivingMessage& message) {
  State* state = find(message.queue_pair);
  if (state == nullptr) return false;
  note(*state, message);
  const unsigned permille = options_.faults.corrupt_permille;
  if (!draw(permille, Kind::corrupt, {state->ordinal, state->messages, state->damaged})) return false;
  ++state->damaged;
  ++counters_.corrupt;
  options_.log(line("corrupt", *state, message) + fmt::format(" time={}", state->damaged));
  return true;
}

bool FaultPlan::not_ready(const ArrivingMessage& message, std::uint64_t receive) {
  State* state = find(message.queue_pair);
  if (state == nullptr) return false;
  note(*state, message);
  const unsigned permille = options_.faults.rnr_permille;
  if (!draw(permille, Kind::rnr, {state->ordinal, state->messages, state->refused})) return false;
  ++state->refused;
  ++counters_.rnr;
  options_.log(line("rnr", *state, message) + fmt::format(" receive_wr_id={} time={}", receive, state->refused));
  return true;
}

std::string FaultPlan::line(const char* kind, const State& state, const SendingRequest& request) const {
  return fmt::format("fault {} device={} qp={} request={} wr_id={} opcode={}", kind, options_.device, state.ordinal,
                     request.position + 1, request.id, opcode_of(request.operation));
}

std::string FaultPlan::line(const char* kind, const State& state, const ArrivingMessage& message) const {
  return fmt::format("fault {} device={} qp={} message={} opcode={}", kind, options_.device, state.ordinal,
                     state.messages, opcode_of(message.kind));
}

}  // namespace splitnic::fabric
