#include "fabric/faults/fault_specification.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace splitnic::fabric {
namespace {

constexpr unsigned kAlways = 1000;
constexpr std::uint64_t kLongestDelay = 10'000'000;  // microseconds
constexpr unsigned kMixPermille = 5;
constexpr Duration kMixDelay = std::chrono::milliseconds(1);

constexpr std::array kStatuses{
    std::pair(std::string_view("loc-len-err"), CompletionStatus::local_length_error),
    std::pair(std::string_view("loc-qp-op-err"), CompletionStatus::memory_request_error),
    std::pair(std::string_view("loc-prot-err"), CompletionStatus::local_protection_error),
    std::pair(std::string_view("rem-inv-req-err"), CompletionStatus::remote_invalid_request_error),
    std::pair(std::string_view("rem-access-err"), CompletionStatus::remote_access_error),
    std::pair(std::string_view("rem-op-err"), CompletionStatus::remote_operation_error),
    std::pair(std::string_view("retry-exc-err"), CompletionStatus::retry_exceeded),
    std::pair(std::string_view("rnr-retry-exc-err"), CompletionStatus::receiver_not_ready),
};

std::string status_names() {
  std::string all;
  for (const auto& [name, status] : kStatuses) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

/// A decimal number without sign, at most `most`.
std::optional<std::uint64_t> number(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value <= most ? std::optional(value) : std::nullopt;
}

/// "a:b": both parts. Without a colon the second is empty.
std::pair<std::string_view, std::string_view> halves(std::string_view text, char between) {
  const std::size_t at = text.find(between);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

using Put = Result<void> (*)(std::string_view value, FaultSpecification& to);

template <unsigned FaultSpecification::*permille>
Result<void> put_rate(std::string_view value, FaultSpecification& to) {
  const auto rate = number(value, kAlways);
  if (!rate) return fail("'{}' is not a rate of 0 to 1000 permille", value);
  to.*permille = static_cast<unsigned>(*rate);
  return {};
}

Result<void> put_delay(std::string_view value, FaultSpecification& to) {
  const auto [rate, time] = halves(value, ':');
  const auto microseconds = number(time, kLongestDelay);
  if (!microseconds) return fail("'{}' is not PERMILLE:MICROSECONDS, with at most {} us", value, kLongestDelay);
  to.delay = std::chrono::microseconds(*microseconds);
  return put_rate<&FaultSpecification::delay_permille>(rate, to);
}

Result<void> put_request(std::string_view value, std::uint64_t& to) {
  const auto request = number(value, ~std::uint64_t{0});
  if (!request || *request == 0) return fail("'{}' is not the number of a request, from 1 on", value);
  to = *request;
  return {};
}

Result<void> put_kill(std::string_view value, FaultSpecification& to) { return put_request(value, to.kill_peer); }

Result<void> put_error(std::string_view value, FaultSpecification& to) {
  const auto [name, request] = halves(value, ':');
  const auto known = std::ranges::find(kStatuses, name, [](const auto& one) { return one.first; });
  if (known == kStatuses.end()) return fail("'{}' is not one of the statuses {}", name, status_names());
  to.cq_status = known->second;
  return put_request(request, to.cq_error);
}

constexpr std::array kFaults{
    std::pair(std::string_view("drop"), Put{put_rate<&FaultSpecification::drop_permille>}),
    std::pair(std::string_view("corrupt"), Put{put_rate<&FaultSpecification::corrupt_permille>}),
    std::pair(std::string_view("delay"), Put{put_delay}),
    std::pair(std::string_view("rnr"), Put{put_rate<&FaultSpecification::rnr_permille>}),
    std::pair(std::string_view("kill-peer"), Put{put_kill}),
    std::pair(std::string_view("cq-error"), Put{put_error}),
    std::pair(std::string_view("duplicate"), Put{put_rate<&FaultSpecification::duplicate_permille>}),
    std::pair(std::string_view("lost-ack"), Put{put_rate<&FaultSpecification::lost_ack_permille>}),
};

Result<void> put(std::string_view word, std::vector<std::string_view>& seen, FaultSpecification& to) {
  const auto [name, value] = halves(word, '=');
  const auto known = std::ranges::find(kFaults, name, [](const auto& one) { return one.first; });
  if (known == kFaults.end()) {
    return fail("'{}' is not one of the faults drop, corrupt, delay, rnr, kill-peer, cq-error, duplicate, lost-ack",
                name);
  }
  if (std::ranges::find(seen, name) != seen.end()) return fail("'{}' stands twice", name);
  seen.push_back(name);
  const auto done = known->second(value, to);
  return done ? done : fail("{}: {}", name, done.error().message);
}

}  // namespace

Result<FaultSpecification> parse_faults(std::string_view text) {
  FaultSpecification made;
  auto [seed, rest] = halves(text, ',');
  const auto value = number(seed, ~std::uint64_t{0});
  if (!value) return fail("faults: '{}' is not a seed, which is a number and stands first", seed);
  made.seed = *value;
  if (seed.size() == text.size()) {
    made.drop_permille = made.corrupt_permille = made.delay_permille = made.rnr_permille = kMixPermille;
    made.delay = kMixDelay;
    return made;
  }
  std::vector<std::string_view> seen;
  for (bool more = true; more;) {
    more = rest.find(',') != std::string_view::npos;
    const auto [word, behind] = halves(rest, ',');
    rest = behind;
    if (const auto done = put(word, seen, made); !done) return fail("faults: {}", done.error().message);
  }
  return made;
}

std::string_view name_of(CompletionStatus status) {
  const auto known = std::ranges::find(kStatuses, status, [](const auto& one) { return one.second; });
  return known == kStatuses.end() ? std::string_view("?") : known->first;
}

}  // namespace splitnic::fabric
