// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/verify_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "fullshard/formats/element_type.h"

namespace fullshard::checkpoint {
namespace {

constexpr int64_t kVerifiedNumel = int64_t{1} << 20;

int64_t count_not_finite(const TensorSource& source, const StoredTensor& tensor) {
  const int64_t numel = tensor.numel();
  const int64_t most = std::min(numel, kVerifiedNumel);
  const at::Tensor block = at::empty({most}, at::TensorOptions().dtype(tensor.dtype));
  int64_t count = 0;
  for (int64_t done = 0; done < numel; done += most) {
    const at::Tensor part = block.narrow(0, 0, std::min(most, numel - done));
    source.read(tensor.name, done, part);
    if (!at::isFloatingType(tensor.dtype)) continue;
    count += part.numel() - at::isfinite(part).sum().item<int64_t>();
  }
  return count;
}

void verify_part(const std::string& part, const TensorSource& source, VerifyResult& result) {
  for (const auto& tensor : source.tensors()) {
    ++result.num_tensors;
    result.bytes += tensor.numel() * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    if (!is_readable(tensor.dtype)) continue;
    const int64_t count = count_not_finite(source, tensor);
    if (count > 0) result.not_finite.push_back({part, tensor.name, count});
  }
}

}  // namespace

VerifyResult verify_checkpoint(const stored::AnyCheckpoint& checkpoint) {
  const at::NoGradGuard no_grad;
  VerifyResult result;
  result.has_sums = checkpoint.has_sums;
  result.without_sums = checkpoint.without_sums;
  checkpoint.check_sums();
  if (checkpoint.weights != nullptr) verify_part("weights", *checkpoint.weights, result);
  for (const auto& state : checkpoint.states) verify_part(state.name, *state.tensors, result);
  if (checkpoint.numbered != nullptr) {
    for (const auto& state : checkpoint.numbered->states()) {
      verify_part(state, *checkpoint.numbered->state(state), result);
    }
  }
  return result;
}

}  // namespace fullshard::checkpoint
