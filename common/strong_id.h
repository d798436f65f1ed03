#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace splitnic {

/// An identifier with its own type, so that a call can't swap two identifiers. Tag is any incomplete struct.
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
