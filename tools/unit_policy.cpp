#include "tools/unit_policy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "common/os/control_client.h"
#include "common/os/errno_text.h"
#include "common/os/printable.h"
#include "common/os/read_file.h"
#include "common/os/unique_fd.h"
#include "common/os/write_file.h"
#include "iounit/policy_file.h"
#include "messaging/wire/cfgutil.h"
#include "tools/daemon.h"

namespace splitnic::tools {

namespace {

constexpr Duration kWriteInterval = std::chrono::seconds(1);
/// After a write that failed, most often because the disk is full.
constexpr Duration kRetryInterval = std::chrono::seconds(10);
/// The file has no revision: it could not be written.
constexpr std::uint64_t kNotWritten = ~std::uint64_t{0};
/// How long the end of the unit waits for the disk.
constexpr std::chrono::milliseconds kPatience(10'000);
constexpr std::chrono::milliseconds kNoPatience(0);

/// How often a reload looks whether it can go on.
constexpr Duration kReadInterval = std::chrono::milliseconds(10);
constexpr Duration kReloadPatience = std::chrono::seconds(10);
static_assert(kReloadPatience < os::kFileAnswerLimit, "the client waits for the reply");
/// Not answered yet. The control socket has fewer clients at a time.
constexpr std::size_t kMaxReloads = 64;
constexpr const char* kOldStays = "the old policy stays in force";

/// Throws UsageError for a text that is wrong in itself, which it is at the start already. Errors: what doesn't go with
/// the rules.
Result<void> add_allowed(iounit::PolicyRules& rules, const std::vector<std::string>& texts) {
  for (const auto& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError{fmt::format("--allow-mac {}: expected HOST=MAC", text)};
    const std::string host = text.substr(0, equals);
    if (!messaging::wire::is_valid_name(host))
      throw UsageError{fmt::format("--allow-mac {}: {} is not a host's name", text, host)};
    const MacAddress address = parse_mac_option(text.substr(equals + 1), "--allow-mac " + text);
    if (std::ranges::find(rules.lan_addresses, address) != rules.lan_addresses.end()) {
      return fail("--allow-mac {}: the address is among lan-addresses", text);
    }
    const auto owner = std::ranges::find_if(rules.hosts, [&](const iounit::HostRule& rule) {
      const auto& own = rule.rights.addresses;
      return rule.name != host && std::ranges::find(own, address) != own.end();
    });
    if (owner != rules.hosts.end()) return fail("--allow-mac {}: the address belongs to host {}", text, owner->name);
    rules.allow(host, address);
  }
  return {};
}

/// --state-directory, or the one that systemd has made for the service; empty: none.
std::string state_directory(const UnitCommand& command) {
  if (!command.state_directory.empty()) return command.state_directory;
  const char* const given = std::getenv("STATE_DIRECTORY");
  const std::string directories = given != nullptr ? given : "";
  return directories.substr(0, directories.find(':'));
}

}  // namespace

UnitPolicy::UnitPolicy(const UnitCommand& command, const std::string& name, const std::optional<Account>& account,
                       os::Log& log)
    : command_(command), log_(log) {
  auto rules = read_rules();
  if (!rules) throw UsageError{rules.error().message};
  rules_ = std::move(*rules);
  if (const auto directory = state_directory(command); !directory.empty()) open_state(directory, name, account);
}

void UnitPolicy::finish() {
  answer_reloads([](const Reload&) { return true; }, fail("the unit ends; {}", kOldStays));
  if (names_path_.empty()) return;
  if (work_ == Work::policy && revision() == written_) return;
  if (!end_work(kPatience) || revision() == written_) return;
  begin_write();
  static_cast<void>(end_work(kPatience));
}

void UnitPolicy::leave_files_to(std::shared_ptr<os::PrivilegedProcess> process) {
  process_ = std::move(process);
  if (command_.policy.empty()) return;
  if (const auto read = request_policy(*process_); !read) {
    log_.warning("the policy can't be read again while the unit runs: {}", read.error().message);
  }
}

void UnitPolicy::describe(UnitService& service) const {
  service.policy = command_.policy;
  service.base = base();
  service.accounts = accounts_;
  service.names = names_path_;
}

iounit::PolicyRules UnitPolicy::base() const {
  iounit::PolicyRules base;
  base.others.foreign_sources = command_.allow_foreign_sources;
  base.others.promiscuous = command_.allow_promiscuous;
  return base;
}

Result<iounit::PolicyRules> UnitPolicy::read_rules() {
  if (command_.policy.empty()) return with_options(base());
  // The privileged process may not ask the system's services; it knows these names.
  return with_options(iounit::read_policy(command_.policy, base(),
                                          {[this](const std::string& text) { return accounts_.look_up_user(text); },
                                           [this](const std::string& text) { return accounts_.look_up_group(text); }}));
}

Result<iounit::PolicyRules> UnitPolicy::with_options(Result<iounit::PolicyRules> rules) const {
  if (!rules) return rules;
  if (auto added = add_allowed(*rules, command_.allow_macs); !added) return tl::unexpected(added.error());
  return rules;
}

/// Only the user who starts the unit may write there: the file says to whom names belong. The account gets no right to
/// it, because the privileged process writes for it, and is this user.
void UnitPolicy::open_state(const std::string& directory, const std::string& name,
                            const std::optional<Account>& account) {
  const bool made = ::mkdir(directory.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    throw StartupError{fmt::format("--state-directory {}: {}", directory, os::errno_text())};
  }
  // The account may replace the directory by a link to another one. So the check and the change are of one directory.
  const os::UniqueFd opened(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat found {};
  if (!opened || ::fstat(opened.get(), &found) != 0) {
    throw StartupError{fmt::format("--state-directory {}: not a directory", directory)};
  }
  const uid_t user = ::geteuid();
  const bool taken_back =
      account && found.st_uid == account->user && ::fchownat(opened.get(), "", user, ::getegid(), AT_EMPTY_PATH) == 0;
  if ((found.st_uid != user && found.st_uid != 0 && !taken_back) || (found.st_mode & 022U) != 0) {
    throw StartupError{fmt::format("--state-directory {}: other users may write there", directory)};
  }
  names_path_ = fmt::format("{}/names-{}.toml", directory, name);
  lock_state(directory, name);
  if (::access(names_path_.c_str(), F_OK) != 0 && errno == ENOENT) return;
  const auto text = os::read_file(names_path_, kMaxPolicyBytes);
  if (!text) throw StartupError{text.error().message};
  auto names = iounit::parse_names(*text, names_path_);
  if (!names) throw StartupError{names.error().message};
  saved_ = std::move(*names);
}

/// Two units with one file would each write their own owners over the other's. A record lock goes with this process: a
/// child that has not closed its descriptors yet holds nothing.
void UnitPolicy::lock_state(const std::string& directory, const std::string& name) {
  const std::string path = names_path_ + ".lock";
  lock_ = os::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_) throw StartupError{fmt::format("{}: {}", path, os::errno_text())};
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(lock_.get(), F_SETLK, &whole) == 0) return;
  if (errno != EAGAIN && errno != EACCES) throw StartupError{fmt::format("{}: {}", path, os::errno_text())};
  throw StartupError{fmt::format(
      "--state-directory {}: another unit named {} keeps the owners of names there; give one of them another --name",
      directory, name)};
}

void UnitPolicy::serve(PolicyAccess access, Time now) {
  access_ = std::move(access);
  access_.change([&](iounit::Policy& policy) {
    policy.ownership().restore(std::exchange(saved_, {}), now + rules_.address_hold);
  });
  written_ = revision();
  if (access_.changes_elsewhere && !names_path_.empty()) next_look_ = now + kWriteInterval;
}

std::uint64_t UnitPolicy::revision() const {
  std::uint64_t revision = 0;
  access_.read([&](const iounit::Policy& policy) { revision = policy.ownership().revision(); });
  return revision;
}

void UnitPolicy::reload(Time now, ReloadDone done) {
  if (command_.policy.empty()) return done(fail("there is no policy file (--policy)"));
  if (reloads_.size() >= kMaxReloads) return done(fail("{} reloads are waiting; {}", reloads_.size(), kOldStays));
  reloads_.push_back({std::move(done), now + kReloadPatience});
  next_read_ = now;
}

/// For the reloads that have asked for this read.
void UnitPolicy::apply(Result<iounit::PolicyRules> rules) {
  // They have given up, and their clients believe that the old rules stay.
  if (std::ranges::none_of(reloads_, &Reload::reading)) return;
  Result<std::string> result;
  if (rules) {
    result = fmt::format("policy {}: {} hosts", command_.policy, rules->hosts.size());
    access_.set_rules(std::move(*rules));
    log_.info("read {}", *result);
  } else {
    result = fail("{}; {}", rules.error().message, kOldStays);
  }
  answer_reloads(&Reload::reading, result);
}

void UnitPolicy::answer_reloads(const std::function<bool(const Reload&)>& chosen, const Result<std::string>& result) {
  const auto first =
      std::stable_partition(reloads_.begin(), reloads_.end(), [&](const Reload& reload) { return !chosen(reload); });
  const std::vector<Reload> answered(std::make_move_iterator(first), std::make_move_iterator(reloads_.end()));
  reloads_.erase(first, reloads_.end());
  for (const Reload& reload : answered) reload.done(result);
}

std::string UnitPolicy::show(Time now) const {
  std::string text;
  std::vector<iounit::OwnedName> names;
  access_.read([&](const iounit::Policy& policy) {
    text = iounit::to_toml(policy.rules());
    names = policy.ownership().all();
  });
  for (const iounit::OwnedName& owned : names) {
    text += fmt::format("\n# name {}: {}", os::printable(owned.name),
                        owned.user ? fmt::format("user {}", *owned.user) : "no user");
    if (!owned.address.is_zero() && now < owned.held_until) {
      text += fmt::format(", {} address {}", owned.held_until == kNever ? "uses" : "holds", to_string(owned.address));
    }
    if (!owned.previous.is_zero() && now < owned.previous_until) {
      text += fmt::format(", holds address {}", to_string(owned.previous));
    }
  }
  return text + '\n';
}

std::size_t UnitPolicy::poll(Time now) {
  const bool reloads = now >= next_read_;
  const bool read = reloads && work_ == Work::policy && end_read(kNoPatience);
  // Between two reloads, however many there are.
  poll_names(now);
  if (reloads) poll_reloads(now);
  return read ? 1 : 0;
}

Time UnitPolicy::next_deadline() const {
  // While the policy is being read, the names wait for its end.
  return std::min({work_ == Work::policy ? kNever : next_write_, next_look_, next_read_});
}

void UnitPolicy::poll_reloads(Time now) {
  const auto late = [now](bool reading) {
    return [now, reading](const Reload& reload) { return reload.reading == reading && now >= reload.deadline; };
  };
  const char* const reader = process_ ? "the privileged process" : "the disk";
  answer_reloads(late(true), fail("{} does not answer; {}", reader, kOldStays));
  answer_reloads(late(false), fail("{} is busy; {}", reader, kOldStays));
  if (!reloads_.empty() && (work_ == Work::none || (work_ == Work::names && end_write(kNoPatience)))) begin_read();
  if (reloads_.empty() && work_ != Work::policy) {
    next_read_ = kNever;
  } else {
    next_read_ = now + (reloads_.empty() ? kWriteInterval : kReadInterval);
  }
}

void UnitPolicy::poll_names(Time now) {
  if (names_path_.empty()) return;
  if (next_look_ != kNever && now >= next_look_) next_look_ = now + kWriteInterval;
  if (next_write_ == kNever) {
    if (revision() == written_) return;
    next_write_ = now;
  }
  if (now < next_write_ || work_ == Work::policy) return;
  if (work_ == Work::names && !end_write(kNoPatience)) {
    next_write_ = now + kWriteInterval;
  } else if (std::exchange(failed_, false)) {
    next_write_ = now + kRetryInterval;
  } else if (revision() == written_) {
    next_write_ = kNever;
  } else {
    begin_write();
    // Then it learns what came of it. Changes that follow closely are written together.
    next_write_ = now + kWriteInterval;
  }
}

void UnitPolicy::begin_write() {
  std::string text;
  access_.read([&](const iounit::Policy& policy) {
    written_ = policy.ownership().revision();
    text = iounit::to_toml(policy.ownership().saved());
  });
  if (process_) {
    const auto sent = send_names(*process_, text);
    if (sent) work_ = Work::names;
    return note(sent);
  }
  writing_ = std::async(std::launch::async,
                        [path = names_path_, text = std::move(text)] { return os::write_file(path, text); });
  work_ = Work::names;
}

void UnitPolicy::begin_read() {
  for (Reload& reload : reloads_) reload.reading = true;
  if (process_) {
    if (const auto sent = send_policy_request(*process_); !sent) return apply(tl::unexpected(sent.error()));
  } else {
    reading_ = std::async(std::launch::async,
                          [path = command_.policy, rules = base()] { return iounit::read_policy(path, rules); });
  }
  work_ = Work::policy;
}

bool UnitPolicy::end_work(std::chrono::milliseconds patience) {
  switch (work_) {
    case Work::none:
      return true;
    case Work::names:
      return end_write(patience);
    case Work::policy:
      return end_read(patience);
  }
  return true;
}

bool UnitPolicy::end_write(std::chrono::milliseconds patience) {
  if (process_) {
    const auto answer = process_->answer(static_cast<int>(patience.count()));
    if (!answer) return false;
    note(answer->map([](const auto&) {}));
  } else {
    if (writing_.wait_for(patience) != std::future_status::ready) return false;
    note(writing_.get());
  }
  work_ = Work::none;
  return true;
}

bool UnitPolicy::end_read(std::chrono::milliseconds patience) {
  if (process_) {
    const auto answer = process_->answer(static_cast<int>(patience.count()));
    if (!answer) return false;
    work_ = Work::none;
    apply(with_options(policy_in(*answer)));
  } else {
    if (reading_.wait_for(patience) != std::future_status::ready) return false;
    work_ = Work::none;
    apply(with_options(reading_.get()));
  }
  return true;
}

void UnitPolicy::note(const Result<void>& written) {
  if (written) return;
  failed_ = true;
  written_ = kNotWritten;
  log_.recurring(os::LogLevel::kWarning,
                 fmt::format("the owners of names are not saved, trying again: {}", written.error().message), "names");
}

}  // namespace splitnic::tools
