// SPDX-License-Identifier: Apache-2.0
// Tensors that take no memory and operators that compute nothing, for plans: code that runs in a
// PretenceScope allocates, frees and views tensors as ever, and every allocation is told to the
// present watch (allocation_watch.h). docs/planning.md, "How a plan is made".
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>

namespace fullshard::tensor {

// This thread only pretends to compute: kernels over raw pointers return at once.
bool is_pretended();

// Tensors of the CPU and of GPUs, whether there are any. Integers and truth values on the CPU stay
// real, since code looks at them, but for those as large as what attention makes of a long
// sequence; everything else reads as zero. Autograd's threads take part.
class PretenceScope {
 public:
  PretenceScope();
  PretenceScope(const PretenceScope&) = delete;
  PretenceScope& operator=(const PretenceScope&) = delete;

 private:
  c10::DebugInfoGuard session_;
  c10::impl::IncludeDispatchKeyGuard factories_, operators_;
};

// What becomes of GPUs that are there: they are used, or no stream and event of this process
// reaches them any more, and a watch is told of them instead (operator_watch.h). A CUDA libtorch
// without any is not asked.
enum class RealGpus { used, hidden };

// Lets autograd and streams take a GPU for granted in a process that has none. Before the first
// backward of the process.
void pretend_gpus(RealGpus real = RealGpus::used);

}  // namespace fullshard::tensor
