#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace splitnic::fabric {

/// The numbers first .. first + count - 1. count: a power of two; first: a multiple of it.
struct NumberRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

/// The numbers below `end`, handed out in ranges that do not overlap. Thread: any.
class NumberSpace {
 public:
  static constexpr std::uint32_t kNumbers = std::uint32_t{1} << 24U;

  /// end: at most kNumbers.
  explicit NumberSpace(std::uint32_t end = kNumbers) : end_(end) {}

  /// Takes the lowest free range of `count` numbers. count: a power of two, at most kNumbers. nullopt: none is free.
  [[nodiscard]] std::optional<NumberRange> take(std::uint32_t count);
  /// range: taken before.
  void give_back(const NumberRange& range);

 private:
  std::uint32_t end_;
  std::mutex mutex_;                              // guards taken_
  std::map<std::uint32_t, std::uint32_t> taken_;  // counts of the ranges in use, by first number
};

/// What is unique among the adapters of a node: the indices of tags, and the numbers of queue pairs. An adapter takes a
/// range of each when it is made, and shares nothing with the other adapters after that. Source: S5; design, "Node,
/// adapters, ports, paths".
class Node {
 public:
  /// One adapter's ranges. They go back to the node with this object, which may outlive the node.
  class Numbers {
   public:
    ~Numbers();
    Numbers(const Numbers&) = delete;
    Numbers& operator=(const Numbers&) = delete;

    [[nodiscard]] const NumberRange& tags() const { return tags_; }
    [[nodiscard]] const NumberRange& queue_pairs() const { return queue_pairs_; }

   private:
    friend class Node;
    struct Spaces {
      NumberSpace tags;
      NumberSpace queue_pairs{NumberSpace::kNumbers - 1};  // the last number stands for multicast
    };
    Numbers(std::shared_ptr<Spaces> spaces, const NumberRange& tags, const NumberRange& queue_pairs);

    std::shared_ptr<Spaces> spaces_;
    NumberRange tags_;
    NumberRange queue_pairs_;
  };

  /// For kSpare times as many queue pairs as an adapter has at a time, so that a number is not used again soon.
  static constexpr std::uint32_t kSpare = 256;

  /// Numbers for an adapter; see take_numbers() in channel_adapter.h. tags, queue_pairs: powers of two. The range for
  /// queue pairs is kSpare times as long, or less where the node has less. Null: the node has too few left. Thread:
  /// any.
  [[nodiscard]] std::shared_ptr<const Numbers> take(std::uint32_t tags, std::uint32_t queue_pairs);

 private:
  std::shared_ptr<Numbers::Spaces> spaces_ = std::make_shared<Numbers::Spaces>();
};

}  // namespace splitnic::fabric
