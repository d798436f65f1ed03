#include "common/os/account.h"

#include <grp.h>
#include <pwd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>

namespace splitnic::os {
namespace {

// The size of the largest entries of a group file. A larger entry counts as not found.
constexpr std::size_t kEntryBytes = std::size_t{1} << 16U;

std::optional<std::uint32_t> parse_number(const std::string& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (number == std::numeric_limits<std::uint32_t>::max()) return std::nullopt;  // "no such user" to the kernel
  return number;
}

}  // namespace

Result<uid_t> find_user(const std::string& text) {
  if (const auto number = parse_number(text)) return *number;
  std::array<char, kEntryBytes> texts;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(text.c_str(), &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr) {
    return fail("no user named {}", text);
  }
  return entry.pw_uid;
}

Result<gid_t> find_group(const std::string& text) {
  if (const auto number = parse_number(text)) return *number;
  std::array<char, kEntryBytes> texts;
  group entry{};
  group* found = nullptr;
  if (::getgrnam_r(text.c_str(), &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr) {
    return fail("no group named {}", text);
  }
  return entry.gr_gid;
}

std::string user_name(uid_t user) {
  std::array<char, kEntryBytes> texts;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr) {
    return fmt::format("{}", user);
  }
  return entry.pw_name;
}

}  // namespace splitnic::os
