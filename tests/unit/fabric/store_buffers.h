#pragma once

#include "memory_trace.h"

#ifdef SPLITNIC_MEMORY_TRACE

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

/// Every order in which the stores of two traced programs may become visible to each other.
namespace splitnic::fabric::test {

/// When a processor's stores become visible. x86: in their order, but for those past the caches. weaker: in any order,
/// as far as fences let them. In both, a word's stores stay in order, and loads are carried out in order.
enum class StoreOrder : std::uint8_t { x86, weaker };

/// Runs two programs against each other in every interleaving. Each stores into a buffer of its own, which the
/// search empties at any moment. A program goes on only while its loads find the values of its trace. So the question
/// is always whether two traces can happen together. No program loads what it stores.
class StoreBuffers {
 public:
  using Kind = MemoryEvent::Kind;
  struct Step {
    Kind kind = Kind::load;
    std::size_t word = 0;
    std::uint32_t value = 0;
    bool differs = false;  ///< a load that must find something else
  };
  using Program = std::vector<Step>;

  StoreBuffers(std::array<Program, 2> programs, std::vector<std::uint32_t> memory, StoreOrder order)
      : programs_(std::move(programs)), memory_(std::move(memory)), order_(order) {}

  /// Whether some order lets both programs reach their ends, or the second alone.
  [[nodiscard]] bool reachable(bool second_alone) {
    second_alone_ = second_alone;
    State start;
    start.memory = memory_;
    return search(start);
  }

 private:
  struct State {
    std::array<std::size_t, 2> at{};
    std::array<std::vector<std::size_t>, 2> buffers;  ///< steps that are not visible yet: stores and store fences
    std::vector<std::uint32_t> memory;
    auto operator<=>(const State&) const = default;
  };

  bool search(const State& state) {
    if (!seen_.insert(state).second) return false;
    bool ended = true;
    for (std::size_t who = 0; who < 2; ++who) {
      ended = ended && (state.at[who] == programs_[who].size() || (who == 0 && second_alone_));
      for (std::size_t entry = 0; entry < state.buffers[who].size(); ++entry) {
        if (may_land(state, who, entry) && search(landed(state, who, entry))) return true;
      }
      if (const auto next = advanced(state, who); next && search(*next)) return true;
    }
    return ended;
  }

  [[nodiscard]] bool may_land(const State& state, std::size_t who, std::size_t entry) const {
    const Step& store = programs_[who][state.buffers[who][entry]];
    if (store.kind == Kind::store_fence) return entry == 0;
    for (std::size_t i = 0; i < entry; ++i) {
      const Step& earlier = programs_[who][state.buffers[who][i]];
      if (earlier.kind == Kind::store_fence || earlier.word == store.word) return false;
      const bool ordered = order_ == StoreOrder::x86 && earlier.kind == Kind::store && store.kind == Kind::store;
      if (ordered) return false;
    }
    return true;
  }
  [[nodiscard]] State landed(State state, std::size_t who, std::size_t entry) const {
    const Step& store = programs_[who][state.buffers[who][entry]];
    if (store.kind != Kind::store_fence) state.memory[store.word] = store.value;
    state.buffers[who].erase(state.buffers[who].begin() + static_cast<std::ptrdiff_t>(entry));
    return state;
  }
  [[nodiscard]] std::optional<State> advanced(State state, std::size_t who) const {
    if (state.at[who] == programs_[who].size()) return std::nullopt;
    const std::size_t number = state.at[who]++;
    const Step& step = programs_[who][number];
    switch (step.kind) {
      case Kind::load:
        if ((state.memory[step.word] == step.value) == step.differs) return std::nullopt;
        return state;
      case Kind::full_fence:
        if (!state.buffers[who].empty()) return std::nullopt;
        return state;
      default:
        state.buffers[who].push_back(number);
        return state;
    }
  }

  std::array<Program, 2> programs_;
  std::vector<std::uint32_t> memory_;
  StoreOrder order_;
  bool second_alone_ = false;
  std::set<State> seen_;
};

/// Two traces, and the words that one of them stores and the other loads.
class TracedPair {
 public:
  TracedPair(const MemoryEvents& first, const MemoryEvents& second, StoreOrder order)
      : events_{first, second}, order_(order) {
    std::array<std::set<const std::byte*>, 2> stored;
    for (std::size_t who = 0; who < 2; ++who) {
      for (const MemoryEvent& event : events_[who]) {
        if (!stores(event)) continue;
        stored[who].insert(event.word);
        held_.try_emplace(event.word, event.before);
      }
    }
    for (std::size_t who = 0; who < 2; ++who) {
      for (const MemoryEvent& event : events_[who]) {
        if (event.kind == MemoryEvent::Kind::load && stored[1 - who].contains(event.word)) shared_.insert(event.word);
      }
    }
  }

  /// Whether both traces can happen together: each end finds the values of its trace.
  [[nodiscard]] bool can_happen() const {
    return query(events_[1].size(), [this](const std::byte* word) { return shared(word); });
  }
  /// A load of the second program that may find something older than it found in the trace, although what it polled
  /// before was new. polled: words whose old values mean no more than that nothing is there yet.
  template <class Polled>
  [[nodiscard]] std::optional<MemoryEvent> stale(Polled&& polled) const {
    std::set<const std::byte*> asked;
    for (std::size_t i = 0; i < events_[1].size(); ++i) {
      const MemoryEvent& load = events_[1][i];
      if (load.kind != MemoryEvent::Kind::load || !shared(load.word) || polled(load.word)) continue;
      if (!asked.insert(load.word).second) continue;  // a copy by bytes
      if (query(i, [&](const std::byte* word) { return word == load.word || (shared(word) && polled(word)); }))
        return load;
    }
    return std::nullopt;
  }
  /// Loads of the second program that the first one's stores can reach.
  [[nodiscard]] std::size_t shared_loads() const {
    return static_cast<std::size_t>(std::ranges::count_if(events_[1], [this](const MemoryEvent& event) {
      return event.kind == MemoryEvent::Kind::load && shared(event.word);
    }));
  }

 private:
  static bool stores(const MemoryEvent& event) {
    return event.kind == MemoryEvent::Kind::store || event.kind == MemoryEvent::Kind::streamed_store;
  }
  [[nodiscard]] bool shared(const std::byte* word) const { return shared_.contains(word); }
  /// last: the second program ends with this step, a load that must differ; or with its own end.
  template <class Kept>
  [[nodiscard]] bool query(std::size_t last, Kept&& kept) const {
    std::map<const std::byte*, std::size_t> words;
    std::vector<std::uint32_t> memory;
    std::map<const std::byte*, bool> known;
    std::array<StoreBuffers::Program, 2> programs;
    for (std::size_t who = 0; who < 2; ++who) {
      for (std::size_t i = 0; i < events_[who].size(); ++i) {
        const MemoryEvent& event = events_[who][i];
        const bool differs = who == 1 && i == last;
        StoreBuffers::Step step{event.kind, 0, event.value, differs};
        if (event.word != nullptr) {
          const auto [found, unknown] = known.try_emplace(event.word);
          if (unknown) found->second = kept(event.word);
          if (!found->second) continue;
          const auto [word, fresh] = words.try_emplace(event.word, memory.size());
          if (fresh) memory.push_back(held_.at(event.word));
          step.word = word->second;
        }
        programs[who].push_back(step);
        if (differs) break;
      }
    }
    return StoreBuffers(std::move(programs), std::move(memory), order_).reachable(last < events_[1].size());
  }

  std::array<MemoryEvents, 2> events_;
  StoreOrder order_;
  std::map<const std::byte*, std::uint32_t> held_;  // at first
  std::set<const std::byte*> shared_;               // stored by one, loaded by the other
};

/// The trace as it would be if the code had none of these fences.
inline MemoryEvents without(MemoryEvents events, MemoryEvent::Kind fence) {
  std::erase_if(events, [fence](const MemoryEvent& event) { return event.kind == fence; });
  return events;
}

}  // namespace splitnic::fabric::test

#endif
