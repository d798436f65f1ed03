#pragma once

#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Closes descriptors that a stranger may have prepared, and never waits for the last close of what is in them. A Unix
/// socket can hold descriptors that nobody has received. Closing the socket closes them, in the thread that closed it,
/// and that may take as long as the stranger likes: a TCP socket with SO_LINGER waits for its peer.
///
/// How: a new thread takes the last references along when it ends. The kernel lets nobody linger who is ending, and
/// should a close take long for another reason, only that thread, which has nothing else to do, stays behind.
///
/// Returns the descriptors that it could not close now, because no thread can be started; try again later. Takes about
/// 0.1 ms for any number of descriptors. Thread: any.
[[nodiscard]] std::vector<UniqueFd> close_elsewhere(std::vector<UniqueFd> descriptors);

}  // namespace splitnic::os
