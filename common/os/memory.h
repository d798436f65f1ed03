#pragma once

namespace splitnic::os {

/// Returns freed memory to the system that the allocator would keep for later. glibc moves its limit for mappings of
/// their own up to the size of the largest block ever freed, so the large blocks of whatever ended lie in the heap
/// between small ones that live on, and are kept. Walks the heap: after something large has ended, while idle, not per
/// packet. Thread: any.
void return_free_memory();

}  // namespace splitnic::os
