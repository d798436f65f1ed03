#pragma once

namespace splitnic::os {

/// Returns freed memory to the system that the allocator would otherwise keep. glibc raises its threshold for separate
/// mappings up to the size of the largest block ever freed. Large freed blocks then lie in the heap between small live
/// blocks, and glibc keeps them. The function walks the heap: call it after something large has ended, while idle, and
/// not per packet. Thread: any.
void return_free_memory();

}  // namespace splitnic::os
