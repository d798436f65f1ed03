#include "common/os/account.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include "common/os/read_file.h"

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

/// The number in the third field of the line that begins with the name, as in /etc/passwd and /etc/group.
std::optional<std::uint32_t> find_in_file(const std::string& path, const std::string& name) {
  constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20U;
  const auto text = read_file(path, kMaxFileBytes);
  if (!text || name.empty() || name.find_first_of(":\n") != std::string::npos) return std::nullopt;
  for (std::string_view left = *text; !left.empty();) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    const auto password_end = line.find(':');
    if (password_end == std::string_view::npos) continue;
    line.remove_prefix(password_end + 1);
    return parse_number(std::string(line.substr(0, line.find(':'))));
  }
  return std::nullopt;
}

Result<std::uint32_t> find_known(const std::map<std::string, std::uint32_t>& known, const std::string& text,
                                 const std::string& path, std::string_view kind) {
  if (const auto number = parse_number(text)) return *number;
  if (const auto number = find_in_file(path, text)) return *number;
  if (const auto found = known.find(text); found != known.end()) return found->second;
  return fail("no {} named {} in {}; for others, write the number", kind, text, path);
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

Result<uid_t> KnownAccounts::look_up_user(const std::string& text) {
  auto found = find_user(text);
  if (found) users_.insert_or_assign(text, *found);
  return found;
}

Result<gid_t> KnownAccounts::look_up_group(const std::string& text) {
  auto found = find_group(text);
  if (found) groups_.insert_or_assign(text, *found);
  return found;
}

Result<uid_t> KnownAccounts::user(const std::string& text) const {
  return find_known(users_, text, "/etc/passwd", "user");
}

Result<gid_t> KnownAccounts::group(const std::string& text) const {
  return find_known(groups_, text, "/etc/group", "group");
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
