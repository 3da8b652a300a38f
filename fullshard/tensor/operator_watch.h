// SPDX-License-Identifier: Apache-2.0
// Who is told what a device would have computed: in a PretenceScope (pretence.h) every operator
// that would run, and every stream and event of a pretended GPU. The watch goes with the thread's
// state, as autograd hands that to its own threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::tensor {

// What bounds an operator: products and attention compute, copies cross the bus, all others move
// memory.
enum class OperatorKind { memory, product, attention, to_device, to_host };

// In the names of attention: whether scores are dropped, masked to the past, added to.
inline constexpr std::string_view kDropped = "dropped_", kCausal = "causal_", kBiased = "biased_";

struct OperatorCall {
  std::string name{};
  OperatorKind kind = OperatorKind::memory;
  // Of a product batch, m, n, k; of attention batch, heads, queries, keys, width; else none.
  std::vector<int64_t> dims{};
  at::ScalarType dtype = at::kFloat;
  double flops = 0;   // of products and attention
  int64_t bytes = 0;  // read and written

  bool operator==(const OperatorCall&) const = default;
};

// Thread-safe: autograd's threads tell it too. Streams and events are numbers; stream 0 is the
// caller's.
class OperatorWatch : public c10::DebugInfoBase,
                      public std::enable_shared_from_this<OperatorWatch> {
 public:
  virtual void ran(const OperatorCall& call, int64_t stream) = 0;
  virtual void marked(int64_t event, int64_t stream) = 0;
  // What the stream is given from here on runs behind the event.
  virtual void held(int64_t event, int64_t stream) = 0;
  // What the host does from here on, it does behind the event.
  virtual void held_host(int64_t event) = 0;
  // A disk would read or write; the host goes on behind that where it has waited for it.
  virtual void moved_on_disk(int64_t number, int64_t bytes, bool is_write) = 0;
  virtual void waited_for_disk(int64_t number) = 0;

  // Of this thread; null where nobody watches, or what runs stands for something else
  // (UnwatchedOperators).
  static std::shared_ptr<OperatorWatch> current();
};

class OperatorWatchScope {
 public:
  explicit OperatorWatchScope(std::shared_ptr<OperatorWatch> watch);

 private:
  c10::DebugInfoGuard guard_;
};

// Around operators that no device would run.
class UnwatchedOperators {
 public:
  UnwatchedOperators();
  ~UnwatchedOperators();
  UnwatchedOperators(const UnwatchedOperators&) = delete;
  UnwatchedOperators& operator=(const UnwatchedOperators&) = delete;
};

// For kernels over raw pointers, in place of a launch. Tensors of the CPU, and undefined ones, are
// passed over.
void note_kernel(std::string_view name, std::initializer_list<at::Tensor> used);
void note_kernel(std::string_view name, int64_t bytes);
// output [m, n] = left [m, k] * right [k, n].
void note_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right);

// As large as what is read or written of it: dimensions that repeat count once.
int64_t touched_bytes(const at::Tensor& tensor);

// The stream that this thread gives work to, where GPUs are pretended; else 0.
int64_t present_stream();
// Gives the one before.
int64_t change_stream(int64_t stream);

}  // namespace fullshard::tensor
