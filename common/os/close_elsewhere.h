#pragma once

#include <vector>

#include "common/os/unique_fd.h"

namespace splitnic::os {

/// Closes descriptors that a stranger may have prepared, and never waits for the last close of the files in them. A
/// Unix socket can hold descriptors that nobody has received. Closing the socket closes them, in the thread that closed
/// it, and that may take as long as the stranger likes: a TCP socket with SO_LINGER waits for its peer.
///
/// How: a new thread holds the last references and ends. In a thread that is ending, the kernel does not wait for
/// SO_LINGER. If a close takes long for another reason, it delays only that thread, which has nothing else to do.
///
/// Returns the descriptors that it could not close now, because no thread can be started; try again later. Takes about
/// 0.1 ms for any number of descriptors. Thread: any. It is
/// no cancellation point.
[[nodiscard]] std::vector<UniqueFd> close_elsewhere(std::vector<UniqueFd> descriptors);

}  // namespace splitnic::os
