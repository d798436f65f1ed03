#pragma once

#include <string>
#include <string_view>

namespace splitnic {

/// Receives lines for people from a core, which knows no logger. Called on the core's thread.
class Notices {
 public:
  virtual ~Notices() = default;
  virtual void notice(const std::string& line) = 0;
  /// For events that a peer can cause again and again, for example a refused hello: the same line may be reported once
  /// and only counted afterwards.
  virtual void recurring_notice(const std::string& line) { notice(line); }
  /// The same for events that one of several peers causes. source: the peer and the kind of event, from a bounded set
  /// ("host 3 state"). However many events one source causes, the lines of the others are written.
  virtual void notice_from(std::string_view /*source*/, const std::string& line) { notice(line); }
  virtual void recurring_notice_from(std::string_view /*source*/, const std::string& line) { recurring_notice(line); }
  /// The core's state has changed to this one. It is shown by a service manager, and does not go into the log. text:
  /// nothing in it is of a peer's choice.
  virtual void state(const std::string& /*text*/) {}
};

}  // namespace splitnic
