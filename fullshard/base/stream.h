// Stores that go past the caches, for buffers that are larger than what a core keeps: a plain store
// would first read the line that it overwrites, half as many bytes again on the memory bus.
#pragma once

#include <cstddef>

namespace fullshard {

// From this size on it pays; below it the reader finds the bytes still in the cache.
inline constexpr size_t kStreamBytes = size_t{1} << 20;

// As memcpy. A thread that streams calls stream_fence() before it tells others about the bytes.
void stream(void* to, const void* from, size_t bytes);
void stream_fence();

// memcpy, streamed and fenced from kStreamBytes on.
void copy_large(void* to, const void* from, size_t bytes);

}  // namespace fullshard
