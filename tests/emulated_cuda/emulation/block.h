// SPDX-License-Identifier: Apache-2.0
// A grid of CUDA threads on one thread of the CPU. Blocks run one after the other; the threads of a
// block are stacks of their own, each running until it waits for others: at __syncthreads(), or
// where the lanes of a warp exchange values. Of the threads that can go on, the first in
// ThreadOrder does, so that a kernel which leans on an order shows it by other bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct CUstream_st;  // cudaStream_t points to it

namespace fullshard::emulation {

struct Size {
  unsigned x = 1, y = 1, z = 1;
};

// The GPU that is played: what its driver says, and refuses.
struct Device {
  int major = 9, minor = 0;
  int most_shared_bytes = 227 * 1024;  // of a block that asks for it, declared ones included
  // Few, so that grids as large as the device leave work for further rounds.
  int num_multiprocessors = 4;

  static const Device& current();
  // For launches from now on.
  void use() const;
};

// One of each compute capability that the library names.
inline constexpr Device kDevices[] = {{.major = 8, .minor = 0, .most_shared_bytes = 163 * 1024},
                                      {.major = 8, .minor = 6, .most_shared_bytes = 99 * 1024},
                                      {.major = 8, .minor = 9, .most_shared_bytes = 99 * 1024},
                                      {.major = 9, .minor = 0, .most_shared_bytes = 227 * 1024},
                                      {.major = 12, .minor = 0, .most_shared_bytes = 99 * 1024}};

// Of blocks, and of the threads of a block. Random orders come from a seed.
class ThreadOrder {
 public:
  static ThreadOrder ascending() { return {Kind::ascending, 0}; }
  static ThreadOrder descending() { return {Kind::descending, 0}; }
  static ThreadOrder random(uint64_t seed) { return {Kind::random, seed}; }

  // For launches from now on. There is one device, as there is in the kernels' eyes.
  void use() const;
  // A permutation of 0 .. count - 1; random ones differ from call to call.
  void arrange(unsigned* numbers, unsigned count);

 private:
  enum class Kind { ascending, descending, random };
  ThreadOrder(Kind kind, uint64_t seed) : kind_(kind), state_(seed) {}
  Kind kind_;
  uint64_t state_;
};

// Calls body() in every thread of every block. Throws Error for a grid that no device takes, for
// threads of which each waits for another, and whatever body() threw.
void run_grid(Size grid, Size threads, size_t shared_bytes, const std::function<void()>& body);

// What a launch gives to its stream; else it runs at once.
using LaunchBy = std::function<void(CUstream_st* stream, std::function<void()> work)>;
void launch_by(LaunchBy by);
void give_to_stream(CUstream_st* stream, std::function<void()> work);

// What kernels call, below; each only from inside run_grid.

extern Size block_index, thread_index, grid_size, block_size;
// What stands for __shared__ in a kernel calls it for every name: the memory of a launch's first
// thread is counted.
void declare_shared(const void* memory, size_t bytes);
void* dynamic_shared();  // aligned to 16 bytes; NaN at a block's begin
void wait_for_block();

inline constexpr unsigned kLanes = 32;

// What the lanes of `mask` brought, `bytes` each: lane i's begins at result + i * bytes. Waits
// until all of them have come with the same mask; the result is there until the next call.
const std::byte* exchange(unsigned mask, const void* own, size_t bytes);

unsigned lane();

// Of the calling thread.
void copy_later(void* to, const void* from, size_t bytes);
void end_copies();

}  // namespace fullshard::emulation
