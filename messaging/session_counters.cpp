#include "messaging/session_counters.h"

#include <algorithm>
#include <functional>

namespace splitnic::messaging {

namespace {

/// Every counter of its own; the two arrays follow.
constexpr std::array kCounters{
    &SessionCounters::tx_frames,
    &SessionCounters::rx_frames,
    &SessionCounters::tx_bytes,
    &SessionCounters::rx_bytes,
    &SessionCounters::rx_before_up,
    &SessionCounters::rx_bad_length,
    &SessionCounters::rx_bad_offload,
    &SessionCounters::lost_elements,
    &SessionCounters::bad_messages,
    &SessionCounters::stray_replies,
    &SessionCounters::answers_not_sent,
    &SessionCounters::pool_gets_refused,
    &SessionCounters::faults,
    &SessionCounters::ups,
    &SessionCounters::writes_sent,
    &SessionCounters::writes_with_immediate_sent,
    &SessionCounters::writes_with_immediate_received,
    &SessionCounters::data_sends_sent,
    &SessionCounters::data_sends_received,
};
static_assert(sizeof(SessionCounters) == (kCounters.size() + 2 * wire::kFunctions.size()) * sizeof(std::uint64_t));

}  // namespace

SessionCounters& operator+=(SessionCounters& sum, const SessionCounters& more) {
  for (const auto counter : kCounters) sum.*counter += more.*counter;
  for (const auto array : {&SessionCounters::messages_sent, &SessionCounters::messages_received}) {
    std::ranges::transform(sum.*array, more.*array, (sum.*array).begin(), std::plus<>{});
  }
  return sum;
}

SessionTotals& operator+=(SessionTotals& sum, const SessionTotals& more) {
  sum.session += more.session;
  sum.adapter += more.adapter;
  sum.doorbells_left_out += more.doorbells_left_out;
  return sum;
}

NamedCounts drop_counts(const SessionTotals& totals) {
  const auto& [session, fabric, doorbells_left_out] = totals;
  return {{"rx_before_up", session.rx_before_up},
          {"rx_bad_length", session.rx_bad_length},
          {"rx_bad_offload", session.rx_bad_offload},
          {"rx_lost_elements", session.lost_elements},
          {"bad_messages", session.bad_messages},
          {"stray_replies", session.stray_replies},
          {"answers_not_sent", session.answers_not_sent},
          {"pool_gets_refused", session.pool_gets_refused},
          {"session_faults", session.faults},
          {"doorbells_left_out", doorbells_left_out},
          {"cells_bad", fabric.dropped_bad_cell},
          {"cells_wrong_address", fabric.dropped_wrong_address},
          {"cells_unknown_queue_pair", fabric.dropped_unknown_queue_pair},
          {"cells_out_of_sequence", fabric.dropped_out_of_sequence},
          {"cells_duplicate", fabric.dropped_duplicate},
          {"sends_without_receive", fabric.dropped_no_receive},
          {"unacknowledged_lost", fabric.dropped_unacknowledged},
          {"fabric_events_lost", fabric.dropped_events},
          {"drain_requests_lost", fabric.dropped_drains},
          {"completions_lost", fabric.dropped_completions},
          {"access_refused", fabric.access_refused}};
}

NamedCounts message_counts(const SessionTotals& totals) {
  const auto& session = totals.session;
  NamedCounts counts;
  for (const auto function : wire::kFunctions) {
    const std::string name(wire::to_string(function));
    counts.emplace_back(name + "_tx", session.messages_sent[wire::index_of(function)]);
    counts.emplace_back(name + "_rx", session.messages_received[wire::index_of(function)]);
  }
  counts.emplace_back("RDMAWriteImmediate_tx", session.writes_with_immediate_sent);
  counts.emplace_back("RDMAWriteImmediate_rx", session.writes_with_immediate_received);
  counts.emplace_back("RDMAWrite_tx", session.writes_sent);
  counts.emplace_back("DataSend_tx", session.data_sends_sent);
  counts.emplace_back("DataSend_rx", session.data_sends_received);
  counts.emplace_back("DirectWrite_tx", totals.adapter.direct_writes);
  counts.emplace_back("SegmentedWrite_tx", totals.adapter.segmented_writes);
  return counts;
}

}  // namespace splitnic::messaging
