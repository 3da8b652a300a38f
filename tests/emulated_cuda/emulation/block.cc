// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_cuda/emulation/block.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace fullshard::emulation {

Size block_index, thread_index, grid_size, block_size;

namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksBeside = 65'535;   // in y and z
constexpr size_t kUsualSharedBytes = 48 * 1024;  // without being asked for

Device& device_played() {
  static Device device;
  return device;
}

class Stack {
 public:
  Stack()
      : memory_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    check(memory_ != MAP_FAILED, "emulated CUDA: no memory for the stack of a thread");
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { munmap(memory_, kStackBytes); }
  void* memory() const { return memory_; }

 private:
  void* memory_;
};

// Kept for later launches: making them anew costs more than most kernels here.
const Stack& stack_of(size_t thread) {
  static std::deque<Stack> stacks;
  while (stacks.size() <= thread) stacks.emplace_back();
  return stacks[thread];
}

// A stack that runs `entry` from its first use on, or the process's own. The address sanitizer is
// told of every change. Changes go by _setjmp, which asks the kernel for nothing.
class Context {
 public:
  void begin_on(const Stack& stack, void (*entry)()) {
    stack_ = stack.memory();
    bytes_ = kStackBytes;
    getcontext(&first_);
    first_.uc_stack.ss_sp = stack.memory();
    first_.uc_stack.ss_size = kStackBytes;
    first_.uc_link = nullptr;
    makecontext(&first_, entry, 0);
  }

  // Returns when somebody comes back.
  void go_to(Context& other) {
    tell_of_leaving(other);
    has_begun_ = true;
    if (_setjmp(left_) == 0) {
      if (!other.has_begun_) {
        other.has_begun_ = true;
        setcontext(&other.first_);
      }
      _longjmp(other.left_, 1);
    }
    tell_of_arrival(nullptr);
  }

  // First of all on a new stack; `from` is who went to it.
  void tell_of_arrival([[maybe_unused]] Context* from) {
#if defined(__SANITIZE_ADDRESS__)
    const void* stack = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &stack, &bytes);
    if (from != nullptr && from->stack_ == nullptr) {
      from->stack_ = stack;
      from->bytes_ = bytes;
    }
#endif
  }

  bool has_begun() const { return has_begun_; }

 private:
  void tell_of_leaving([[maybe_unused]] const Context& other) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.bytes_);
#endif
  }

  jmp_buf left_;
  ucontext_t first_;
  bool has_begun_ = false;
  [[maybe_unused]] const void* stack_ = nullptr;
  [[maybe_unused]] size_t bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

struct LateCopy {
  void* to;
  const void* from;
  size_t bytes;
};

enum class State { ready, at_barrier, at_exchange, done };

struct Exchange {
  unsigned mask;  // lanes that are to come
  unsigned arrived = 0;
  std::vector<std::byte> values;
};

struct Thread {
  State state = State::ready;
  Size index;
  Context context;
  std::shared_ptr<Exchange> exchange;  // the last one that it took part in
  std::vector<LateCopy> copies;
};

ThreadOrder& current_order() {
  static ThreadOrder order = ThreadOrder::ascending();
  return order;
}

class Block;
Block* running = nullptr;

// One after the other of a grid's blocks.
class Block {
 public:
  Block(Size size, size_t shared_bytes, const std::function<void()>& body)
      : body_(body),
        threads_(size.x * size.y * size.z),
        open_exchanges_((threads_.size() + kLanes - 1) / kLanes),
        shared_(shared_bytes / sizeof(Word) + 1),
        order_(threads_.size()),
        places_(threads_.size()) {}

  void run(Size index) {
    block_index = index;
    std::memset(shared_.data(), 0xff, shared_.size() * sizeof(Word));  // NaN in every dtype
    arrange();
    for (unsigned i = 0; i < threads_.size(); ++i) begin(i);
    while (num_in(State::done) < threads_.size()) {
      while (!ready_.empty()) {
        const unsigned i = order_[ready_.top()];
        ready_.pop();
        resume(i);
      }
      release_barrier();
    }
  }

  void wait(State state) {
    auto& thread = threads_[current_];
    thread.state = state;
    thread.context.go_to(outside_);
  }

  const std::byte* exchange(unsigned mask, const void* own, size_t bytes) {
    const unsigned lane = current_ % kLanes, own_bit = 1u << lane;
    check((mask & own_bit) != 0,
          "emulated CUDA: lane {} exchanges values under mask {:x}, which leaves it out", lane,
          mask);
    auto& exchange = threads_[current_].exchange;
    exchange = joined_exchange(mask, bytes);
    std::memcpy(exchange->values.data() + lane * bytes, own, bytes);
    exchange->arrived |= own_bit;
    if (exchange->arrived == mask) {
      end_exchange(*exchange);
    } else {
      wait(State::at_exchange);
    }
    return exchange->values.data();
  }

  // By the first thread alone: it stands for all.
  void declare(const void* memory, size_t bytes) {
    if (current_ == 0) declared_[memory] = bytes;
  }
  size_t declared_bytes() const {
    size_t sum = 0;
    for (const auto& [memory, bytes] : declared_) sum += bytes;
    return sum;
  }

  std::vector<LateCopy>& copies() { return threads_[current_].copies; }
  unsigned current() const { return current_; }
  void* shared() { return shared_.data(); }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };

  void arrange() {
    current_order().arrange(order_.data(), static_cast<unsigned>(order_.size()));
    for (unsigned place = 0; place < order_.size(); ++place) places_[order_[place]] = place;
  }

  void make_ready(unsigned i) {
    threads_[i].state = State::ready;
    ready_.push(places_[i]);
  }

  void begin(unsigned i) {
    auto& thread = threads_[i];
    make_ready(i);
    thread.index = {i % block_size.x, i / block_size.x % block_size.y,
                    i / (block_size.x * block_size.y)};
    thread.copies.clear();
    if (!thread.context.has_begun()) thread.context.begin_on(stack_of(i), &Block::enter);
  }

  // One thread of every block in turn.
  [[noreturn]] static void enter() {
    auto& block = *running;
    auto& thread = block.threads_[block.current_];
    thread.context.tell_of_arrival(&block.outside_);
    while (true) {
      try {
        block.body_();
      } catch (...) {
        block.failure_ = std::current_exception();
      }
      block.wait(State::done);
    }
  }

  // Other threads of a block that failed stay where they are: kernels own nothing.
  void resume(unsigned i) {
    current_ = i;
    thread_index = threads_[i].index;
    outside_.go_to(threads_[i].context);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  size_t num_in(State state) const {
    return static_cast<size_t>(std::ranges::count(threads_, state, &Thread::state));
  }

  // The one of this warp that waits for lanes of the mask; a new one, if there is none.
  const std::shared_ptr<Exchange>& joined_exchange(unsigned mask, size_t bytes) {
    auto& open = open_exchanges_[current_ / kLanes];
    for (const auto& exchange : open) {
      if (exchange->mask != mask) continue;
      check(exchange->values.size() == kLanes * bytes,
            "emulated CUDA: lanes of one exchange bring {} and {} bytes",
            exchange->values.size() / kLanes, bytes);
      return exchange;
    }
    open.push_back(std::make_shared<Exchange>(
        Exchange{mask, 0, std::vector<std::byte>(kLanes * bytes, std::byte{0xff})}));
    return open.back();
  }

  void end_exchange(const Exchange& ended) {
    const unsigned warp = current_ / kLanes;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned i = warp * kLanes + lane;
      if ((ended.mask >> lane & 1) != 0 && i != current_) make_ready(i);
    }
    std::erase_if(open_exchanges_[warp],
                  [&](const auto& exchange) { return exchange.get() == &ended; });
  }

  // Threads that have ended are not waited for.
  void release_barrier() {
    if (num_in(State::done) == threads_.size()) return;
    const size_t at_barrier = num_in(State::at_barrier), at_exchange = num_in(State::at_exchange);
    check(at_barrier > 0 && at_exchange == 0,
          "emulated CUDA: in block {}, {} threads wait at __syncthreads(), {} for other lanes of "
          "their warps, and {} have ended: nobody can go on",
          block_index.x, at_barrier, at_exchange, num_in(State::done));
    for (unsigned i = 0; i < threads_.size(); ++i) {
      if (threads_[i].state == State::at_barrier) make_ready(i);
    }
  }

  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<std::vector<std::shared_ptr<Exchange>>> open_exchanges_;  // of each warp
  std::vector<Word> shared_;
  std::vector<unsigned> order_, places_;  // thread of a place, place of a thread
  // Places of threads that can go on. The first of them always does, so that one warp gets as far
  // ahead of the others as barriers let it.
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<>> ready_;
  unsigned current_ = 0;
  std::map<const void*, size_t> declared_;  // __shared__ of the kernel
  Context outside_;
  std::exception_ptr failure_;
};

void check_shared(size_t declared, size_t dynamic) {
  check(declared <= kUsualSharedBytes,
        "emulated CUDA: a kernel declares {} bytes of shared memory, which no device takes",
        declared);
  const auto most = static_cast<size_t>(device_played().most_shared_bytes);
  check(declared + dynamic <= most,
        "emulated CUDA: {} bytes of shared memory and {} that the kernel declares, a block of this "
        "device has {}",
        dynamic, declared, most);
}

class Running {
 public:
  explicit Running(Block& block) { running = &block; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { running = nullptr; }
};

}  // namespace

void ThreadOrder::use() const { current_order() = *this; }

void ThreadOrder::arrange(unsigned* numbers, unsigned count) {
  std::iota(numbers, numbers + count, 0u);
  if (kind_ == Kind::descending) std::reverse(numbers, numbers + count);
  if (kind_ != Kind::random) return;
  for (unsigned i = count; i > 1; --i) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    std::swap(numbers[i - 1], numbers[(state_ >> 33) % i]);
  }
}

void run_grid(Size grid, Size threads, size_t shared_bytes, const std::function<void()>& body) {
  const uint64_t num_threads = uint64_t{threads.x} * threads.y * threads.z;
  check(num_threads > 0 && num_threads <= kMostThreads,
        "emulated CUDA: {} threads in a block, a device takes 1 to {}", num_threads, kMostThreads);
  check(grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0 && grid.y <= kMostBlocksBeside &&
            grid.z > 0 && grid.z <= kMostBlocksBeside,
        "emulated CUDA: a grid of {} x {} x {} blocks, which no device takes", grid.x, grid.y,
        grid.z);
  check_shared(0, shared_bytes);
  check(running == nullptr, "emulated CUDA: a kernel launches another one");
  grid_size = grid;
  block_size = threads;
  Block block(threads, shared_bytes, body);
  const uint64_t num_blocks = uint64_t{grid.x} * grid.y * grid.z;
  std::vector<unsigned> order(num_blocks);
  current_order().arrange(order.data(), static_cast<unsigned>(num_blocks));
  const Running scope(block);
  for (const unsigned i : order) {
    block.run({i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)});
    check_shared(block.declared_bytes(), shared_bytes);
  }
}

namespace {

LaunchBy& launcher() {
  static LaunchBy by;
  return by;
}

}  // namespace

void launch_by(LaunchBy by) { launcher() = std::move(by); }

void give_to_stream(CUstream_st* stream, std::function<void()> work) {
  if (!launcher()) return work();
  launcher()(stream, std::move(work));
}

const Device& Device::current() { return device_played(); }
void Device::use() const { device_played() = *this; }

void declare_shared(const void* memory, size_t bytes) { running->declare(memory, bytes); }

void* dynamic_shared() { return running->shared(); }
void wait_for_block() { running->wait(State::at_barrier); }
const std::byte* exchange(unsigned mask, const void* own, size_t bytes) {
  return running->exchange(mask, own, bytes);
}
void copy_later(void* to, const void* from, size_t bytes) {
  running->copies().push_back({to, from, bytes});
}
void end_copies() {
  for (const auto& copy : running->copies()) std::memcpy(copy.to, copy.from, copy.bytes);
  running->copies().clear();
}
unsigned lane() { return running->current() % kLanes; }

}  // namespace fullshard::emulation
