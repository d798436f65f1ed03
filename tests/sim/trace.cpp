#include "trace.h"

#include <fmt/format.h>

#include <cstdio>

namespace splitnic::sim {

namespace {

constexpr std::uint64_t kFnvPrime = 0x100000001b3U;

}  // namespace

std::string to_text(Time time) {
  return fmt::format("{:.3f} ms", std::chrono::duration<double, std::milli>(time - kStart).count());
}

void Trace::mix(std::uint64_t word) {
  hash_ = (hash_ ^ word) * kFnvPrime;
  hash_ ^= hash_ >> 29U;
}

void Trace::mix(std::string_view text) {
  for (const char character : text) hash_ = (hash_ ^ static_cast<unsigned char>(character)) * kFnvPrime;
}

void Trace::open_line(Time now) const { std::fputs(fmt::format("{:>14}  ", to_text(now)).c_str(), stdout); }

void Trace::event(Time now, std::string_view what, std::uint64_t a, std::uint64_t b) {
  ++events_;
  mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));
  mix(what);
  mix(a);
  mix(b);
  if (!printing_) return;
  open_line(now);
  std::fputs(fmt::format("{} {} {}\n", what, a, b).c_str(), stdout);
}

void Trace::line(Time now, std::string_view who, std::string_view text) {
  ++events_;
  mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));
  mix(who);
  mix(text);
  if (!printing_) return;
  open_line(now);
  std::fputs(fmt::format("{}: {}\n", who, text).c_str(), stdout);
}

void Verdicts::violate(Time now, std::string what) {
  if (first_.empty()) first_ = fmt::format("at {}: {}", to_text(now), what);
}

}  // namespace splitnic::sim
