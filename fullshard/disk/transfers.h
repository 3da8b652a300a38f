// SPDX-License-Identifier: Apache-2.0
// Reads and writes of which several are under way at a time: through io_uring where the kernel
// allows it, by threads elsewhere.
#pragma once

#include <cstdint>
#include <memory>

namespace fullshard::disk {

struct Transfer {
  int descriptor = -1;
  bool is_write = false;
  int64_t offset = 0;  // of the file
  char* data = nullptr;
  int64_t bytes = 0;
};

// Belongs to one thread. The destructor waits for what is under way.
class Transfers {
 public:
  struct Ended {
    int64_t id = 0;
    int64_t result = 0;  // bytes moved, or an error number below 0
  };

  virtual ~Transfers() = default;

  // At most as many as `depth` are prepared or under way at a time. Those that are prepared begin
  // together with submit().
  virtual void prepare(int64_t id, const Transfer& transfer) = 0;
  virtual void submit() = 0;
  void begin(int64_t id, const Transfer& transfer) {
    prepare(id, transfer);
    submit();
  }
  // Of those that have begun, one that has ended.
  virtual Ended wait() = 0;
};

// Without anything beside it.
int64_t move_bytes(const Transfer& transfer);

enum class TransferKind { automatic, uring, threads };

// Null: the kernel, or this build, refuses io_uring and nothing else was asked for.
std::unique_ptr<Transfers> make_transfers(int depth, TransferKind kind = TransferKind::automatic);

// Tried once: containers often forbid it.
bool has_uring();

}  // namespace fullshard::disk
