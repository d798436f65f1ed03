#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace splitnic {

/// An identifier that is a type of its own, so that a call can't swap two of them. Tag is any incomplete struct.
template <class Tag, class Value>
struct StrongId {
  using value_type = Value;
  Value value{};
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

}  // namespace splitnic

template <class Tag, class Value>
struct std::hash<splitnic::StrongId<Tag, Value>> {
  std::size_t operator()(const splitnic::StrongId<Tag, Value>& id) const noexcept {
    return std::hash<Value>{}(id.value);
  }
};
