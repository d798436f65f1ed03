#include "fabric/node/node.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"

namespace splitnic::fabric {

std::optional<NumberRange> NumberSpace::take(std::uint32_t count) {
  SPLITNIC_CHECK(std::has_single_bit(count) && count <= kNumbers);
  const std::lock_guard lock(mutex_);
  std::uint32_t first = 0;
  for (const auto& [taken_first, taken_count] : taken_) {
    if (first + count <= taken_first) break;
    first = std::max(first, (taken_first + taken_count + count - 1) / count * count);
  }
  if (first + count > end_) return std::nullopt;
  taken_.emplace(first, count);
  return NumberRange{first, count};
}

void NumberSpace::give_back(const NumberRange& range) {
  const std::lock_guard lock(mutex_);
  SPLITNIC_CHECK_OP(taken_.erase(range.first), ==, std::size_t{1});
}

Node::Numbers::Numbers(std::shared_ptr<Spaces> spaces, const NumberRange& tags, const NumberRange& queue_pairs)
    : spaces_(std::move(spaces)), tags_(tags), queue_pairs_(queue_pairs) {}

Node::Numbers::~Numbers() {
  spaces_->tags.give_back(tags_);
  spaces_->queue_pairs.give_back(queue_pairs_);
}

std::shared_ptr<const Node::Numbers> Node::take(std::uint32_t tags, std::uint32_t queue_pairs) {
  const auto of_tags = spaces_->tags.take(tags);
  if (!of_tags) return nullptr;
  for (std::uint32_t spare = kSpare; spare != 0; spare /= 2) {
    if (queue_pairs > NumberSpace::kNumbers / spare) continue;
    if (const auto range = spaces_->queue_pairs.take(queue_pairs * spare)) {
      return std::shared_ptr<const Numbers>(new Numbers(spaces_, *of_tags, *range));
    }
  }
  spaces_->tags.give_back(*of_tags);
  return nullptr;
}

}  // namespace splitnic::fabric
