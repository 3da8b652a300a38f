// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/diff_checkpoints.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/weights/source_sums.h"

namespace fullshard::checkpoint {
namespace {

constexpr int64_t kComparedNumel = int64_t{1} << 18;
constexpr const char* kOnlyFirst = "only in the first";
constexpr const char* kOnlySecond = "only in the second";

struct Compared {
  int64_t num_different = 0;
  double largest = 0;
};

Compared compare_values(const TensorSource& first, const TensorSource& second,
                        const StoredTensor& tensor, double tolerance) {
  Compared result;
  const int64_t numel = tensor.numel();
  const int64_t most = std::min(numel, kComparedNumel);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor left = at::empty({most}, options);
  const at::Tensor right = at::empty({most}, options);
  for (int64_t done = 0; done < numel; done += most) {
    const at::Tensor a = left.narrow(0, 0, std::min(most, numel - done));
    const at::Tensor b = right.narrow(0, 0, a.numel());
    first.read(tensor.name, done, a);
    second.read(tensor.name, done, b);
    // Equal infinities and two NaN differ by nothing, one NaN by infinity.
    const at::Tensor same = a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan()));
    const at::Tensor apart =
        a.sub(b).abs_().nan_to_num_(INFINITY, INFINITY).masked_fill_(same, 0.0);
    result.num_different += apart.gt(tolerance).sum().item<int64_t>();
    result.largest = std::max(result.largest, apart.max().item<double>());
  }
  return result;
}

using Names = std::map<std::string, std::string>;

// Some programs keep a tied tensor under one of its names only.
bool has_other_name(const std::string& name, const Names& tied, const TensorSource& source) {
  const auto same = tied.find(name);
  return same != tied.end() && source.find(same->second) != nullptr;
}

class Diff {
 public:
  explicit Diff(double tolerance) : tolerance_(tolerance) {}

  void compare(const std::string& part, const TensorSource& first, const TensorSource& second,
               const Names& tied_in_first = {}, const Names& tied_in_second = {}) {
    for (const auto& tensor : first.tensors()) {
      const StoredTensor* other = second.find(tensor.name);
      if (other == nullptr) {
        if (!has_other_name(tensor.name, tied_in_first, second)) {
          add(part, tensor.name, kOnlyFirst);
        }
      } else if (other->shape != tensor.shape) {
        add(part, tensor.name,
            fmt::format("shape {} and {}", format_shape(tensor.shape), format_shape(other->shape)));
      } else {
        compare_tensor(part, first, second, tensor);
      }
    }
    for (const auto& tensor : second.tensors()) {
      if (first.find(tensor.name) != nullptr) continue;
      if (!has_other_name(tensor.name, tied_in_second, first)) add(part, tensor.name, kOnlySecond);
    }
    // Damage is no difference.
    formats::check_sums_of(first);
    formats::check_sums_of(second);
  }

  void add(const std::string& part, const std::string& tensor, const std::string& what) {
    result_.differences.push_back({part, tensor, what});
  }

  CheckpointDiff take() { return std::move(result_); }

 private:
  void compare_tensor(const std::string& part, const TensorSource& first,
                      const TensorSource& second, const StoredTensor& tensor) {
    ++result_.num_compared;
    const Compared found = compare_values(first, second, tensor, tolerance_);
    if (found.num_different == 0) return;
    result_.differences.push_back(
        {part, tensor.name, "values", found.num_different, found.largest});
  }

  double tolerance_;
  CheckpointDiff result_;
};

const TensorSource* find_state(const stored::AnyCheckpoint& checkpoint, const std::string& name) {
  for (const auto& state : checkpoint.states) {
    if (state.name == name) return state.tensors.get();
  }
  return nullptr;
}

}  // namespace

CheckpointDiff diff_checkpoints(const stored::AnyCheckpoint& first,
                                const stored::AnyCheckpoint& second, double tolerance) {
  const at::NoGradGuard no_grad;
  Diff diff(tolerance);
  if (first.weights != nullptr && second.weights != nullptr) {
    diff.compare("weights", *first.weights, *second.weights, first.tied, second.tied);
  } else if (first.weights != nullptr || second.weights != nullptr) {
    diff.add("weights", "", first.weights != nullptr ? kOnlyFirst : kOnlySecond);
  }
  if (first.states.empty() || second.states.empty()) return diff.take();
  for (const auto& state : first.states) {
    const TensorSource* other = find_state(second, state.name);
    if (other == nullptr) {
      diff.add(state.name, "", kOnlyFirst);
    } else {
      diff.compare(state.name, *state.tensors, *other);
    }
  }
  for (const auto& state : second.states) {
    if (find_state(first, state.name) == nullptr) diff.add(state.name, "", kOnlySecond);
  }
  return diff.take();
}

}  // namespace fullshard::checkpoint
