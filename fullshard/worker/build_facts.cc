// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/build_facts.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/csrc/api/include/torch/version.h>

#include <string>

#include "fullshard/comm/gpu/nccl_backend.h"

namespace fullshard::worker {
namespace {

std::string devices() {
  if (!at::hasCUDA()) return "CPU only";
  return fmt::format("CUDA with {} GPUs", at::getNumGPUs());
}

}  // namespace

int print_build_facts() {
  const bool has_nccl = comm::is_built_with_nccl();
  fmt::print("libtorch\t{}, {}, {}\t{}\n", TORCH_VERSION, devices(), at::get_cpu_capability(),
             "loaded by fullshard-core and by programs that use the library, not by this one");
  fmt::print(
      "backends\tshm, gloo{}\tranks of one host use shared memory (shm), those of "
      "several hosts TCP (gloo); {}\n",
      has_nccl ? ", nccl" : "",
      has_nccl ? "tensors on GPUs through nccl" : "nccl needs a build with CUDA");
  return 0;
}

}  // namespace fullshard::worker
