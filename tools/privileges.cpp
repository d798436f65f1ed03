#include "tools/privileges.h"

#include <cap-ng.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "common/os/account.h"
#include "common/os/errno_text.h"

namespace splitnic::tools {

namespace {

[[noreturn]] void failed(const std::string& what) { throw StartupError{fmt::format("{}: {}", what, os::errno_text())}; }

}  // namespace

Account find_account(const std::string& text) {
  const auto user = os::find_user(text);
  if (!user) throw UsageError{fmt::format("--user: {}", user.error().message)};
  Account account{*user, *user};
  std::vector<char> texts(std::size_t{1} << 16U);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(*user, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr) {
    account.group = entry.pw_gid;
  }
  return account;
}

void keep_only(std::span<const int> capabilities, const std::optional<Account>& account) {
  constexpr auto kUsable = static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED);
  capng_setpid(static_cast<int>(::getpid()));
  if (capng_get_caps_process() != 0) throw StartupError{"can't read this process's capabilities"};
  const bool may_bound = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0;
  std::vector<unsigned> kept;
  for (const int capability : capabilities) {
    const auto number = static_cast<unsigned>(capability);
    if (capng_have_capability(CAPNG_PERMITTED, number) != 0) kept.push_back(number);
  }
  capng_clear(CAPNG_SELECT_ALL);
  for (const unsigned number : kept) {
    capng_update(CAPNG_ADD, static_cast<capng_type_t>(kUsable | CAPNG_BOUNDING_SET), number);
  }
  // The bounding set needs a capability that goes with the others.
  if (may_bound && capng_apply(CAPNG_SELECT_BOUNDS) != 0) failed("limiting the bounding set of capabilities");
  const bool changes = account && (account->user != ::getuid() || account->group != ::getgid());
  if (changes) {
    if (capng_change_id(static_cast<int>(account->user), static_cast<int>(account->group), CAPNG_DROP_SUPP_GRP) != 0) {
      failed(fmt::format("becoming the user {}", account->user));
    }
  } else if (capng_apply(CAPNG_SELECT_CAPS) != 0) {
    failed("giving up capabilities");
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) failed("no_new_privs");
}

}  // namespace splitnic::tools
