// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace fullshard::train {

void choose_deterministic_kernels() {
  // cuBLAS repeats its sums only with a workspace of fixed size.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setBenchmarkCuDNN(false);
}

}  // namespace fullshard::train
