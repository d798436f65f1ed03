#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/os/event_loop.h"
#include "common/os/log.h"
#include "common/os/privileged_process.h"
#include "common/os/unique_fd.h"
#include "common/result.h"
#include "iounit/policy.h"
#include "tools/commands.h"
#include "tools/privileges.h"
#include "tools/unit_requests.h"

namespace splitnic::tools {

/// How UnitPolicy reaches the policy of one I/O unit, or of several.
struct PolicyAccess {
  std::function<void(const std::function<void(iounit::Policy&)>&)> change;
  std::function<void(const std::function<void(const iounit::Policy&)>&)> read;
  std::function<void(iounit::PolicyRules)> set_rules;
  bool changes_elsewhere = false;  ///< other threads change it, which wakes nobody here
};

/// The files behind an I/O unit's policy: the rules, read at the start and again on request, and the owners of names,
/// written to the state directory within a second of a change, and again every 10 s while that fails. Thread: the
/// loop's. The privileged process waits for the disk, or a thread of its own without one. It does one thing at a time:
/// names and reloads take turns.
class UnitPolicy final : public os::Task {
 public:
  /// name: the unit's. account: the user that the unit will be. command and log are lent. Throws UsageError for wrong
  /// rules, StartupError if the state directory or its file can't be used.
  UnitPolicy(const UnitCommand& command, const std::string& name, const std::optional<Account>& account, os::Log& log);

  /// From now on this process, with a UnitService, reads and writes the files. Warns if it can't read the policy.
  void leave_files_to(std::shared_ptr<os::PrivilegedProcess> process);
  /// The part of a UnitService that is about the files. Its requests come from the options alone.
  void describe(UnitService& service) const;
  /// The rules of the options and of the policy file, as they were at the start.
  [[nodiscard]] const iounit::PolicyRules& rules() const { return rules_; }
  /// Gives the policy the saved names and keeps those that it learns. access: works until finish(); call once.
  void serve(PolicyAccess access, Time now);

  /// Writes what has changed, and waits for it. Reloads that are not done fail. Call before the unit ends.
  void finish();

  /// Gets a line for people, or an error: then the unit's rules are the old ones, and stay.
  using ReloadDone = std::function<void(Result<std::string>)>;
  /// Reads the policy file again and gives its rules to the unit. Calls done once, in a later poll() or in finish(), or
  /// at once if it can't begin. Errors: no file, a wrong file, not read within 10 s.
  void reload(Time now, ReloadDone done);
  /// The rules in TOML, and the known names as comments.
  [[nodiscard]] std::string show(Time now) const;

  std::size_t poll(Time now) override;
  bool prepare_sleep(Time /*now*/) override { return true; }
  void disarm() override {}
  [[nodiscard]] Time next_deadline() const override;
  void collect_descriptors(std::vector<int>& /*out*/) const override {}

 private:
  /// What the privileged process does, or the thread without one.
  enum class Work : std::uint8_t { none, names, policy };
  struct Reload {
    ReloadDone done;
    Time deadline;
    bool reading = false;  ///< the read that is under way has begun after the request
  };

  [[nodiscard]] iounit::PolicyRules base() const;
  [[nodiscard]] Result<iounit::PolicyRules> read_rules();
  [[nodiscard]] Result<iounit::PolicyRules> with_options(Result<iounit::PolicyRules> rules) const;
  void open_state(const std::string& directory, const std::string& name, const std::optional<Account>& account);
  void lock_state(const std::string& directory, const std::string& name);
  [[nodiscard]] std::uint64_t revision() const;  // of the names
  void poll_names(Time now);
  void poll_reloads(Time now);
  void begin_write();
  void begin_read();
  /// False: the work is still under way. patience: how long to wait for its end.
  [[nodiscard]] bool end_work(std::chrono::milliseconds patience);
  [[nodiscard]] bool end_write(std::chrono::milliseconds patience);
  [[nodiscard]] bool end_read(std::chrono::milliseconds patience);
  void note(const Result<void>& written);
  void apply(Result<iounit::PolicyRules> rules);
  /// Answers the reloads that are chosen, and forgets them.
  void answer_reloads(const std::function<bool(const Reload&)>& chosen, const Result<std::string>& result);

  const UnitCommand& command_;
  os::Log& log_;
  std::shared_ptr<os::PrivilegedProcess> process_;
  os::KnownAccounts accounts_;
  iounit::PolicyRules rules_;
  PolicyAccess access_;
  std::string names_path_;  // empty: names are not saved
  os::UniqueFd lock_;       // of names_path_, against other units
  std::vector<iounit::OwnedName> saved_;
  std::uint64_t written_ = 0;                         // the revision of the file, if what is being written succeeds
  bool failed_ = false;                               // the last write
  Time next_write_ = kNever;                          // set while the file is out of date or being written
  Time next_look_ = kNever;                           // for what other threads have changed
  Time next_read_ = kNever;                           // set while there are reloads or the policy is being read
  std::vector<Reload> reloads_;                       // not answered yet
  Work work_ = Work::none;                            // under way
  std::future<Result<void>> writing_;                 // without a privileged process
  std::future<Result<iounit::PolicyRules>> reading_;  // the same
};

}  // namespace splitnic::tools
