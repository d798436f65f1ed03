#include "common/os/path_watch.h"

#include <sys/inotify.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/os/message_io.h"
#include "common/os/path_parts.h"

namespace splitnic::os {
namespace {

constexpr std::uint32_t kEvents = IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

}  // namespace

PathWatch::PathWatch(std::string path) : path_(std::move(path)), events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

bool PathWatch::watch() {
  std::string at = path_;
  for (;;) {
    const std::string folder = folder_of(at);
    // The kernel gives the same number for the same folder.
    const int number = ::inotify_add_watch(events_.get(), folder.c_str(), kEvents);
    if (number >= 0) {
      if (watched_ >= 0 && number != watched_) ::inotify_rm_watch(events_.get(), watched_);
      const bool other = number != watched_ || name_of(at) != name_;
      watched_ = number;
      name_ = name_of(at);
      return other;
    }
    if (folder == "." || folder == folder_of(folder)) break;  // "." or "/"
    at = folder;
  }
  return std::exchange(watched_, -1) >= 0;
}

void PathWatch::pause() {
  paused_ = true;
  if (const int number = std::exchange(watched_, -1); number >= 0) ::inotify_rm_watch(events_.get(), number);
  if (events_) static_cast<void>(take_events());
}

bool PathWatch::take_events() {
  bool relevant = false;
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read_some(events_.get(), std::as_writable_bytes(std::span(buffer)))) > 0;) {
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, &buffer[at], sizeof event);
      const char* name = event.len == 0 ? "" : &buffer[at + sizeof event];
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) relevant = true;
      if (event.wd != watched_) continue;
      if ((event.mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
        watched_ = -1;
        relevant = true;
      } else {
        relevant = relevant || name_ == name;
      }
    }
  }
  return relevant;
}

bool PathWatch::changed() {
  if (!events_) return false;
  paused_ = false;
  bool relevant = take_events();
  // Watch, then look: the path may have appeared before the watch was there. After a folder on the way to the path has
  // appeared, the watch moves down to it, and so on until nothing moves.
  constexpr int kMoves = 64;
  for (int i = 0; i < kMoves && (relevant || watched_ < 0) && watch(); ++i) relevant = true;
  return relevant;
}

}  // namespace splitnic::os
