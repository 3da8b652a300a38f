// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/load_plan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "fullshard/formats/input_error.h"

namespace fullshard::checkpoint {
namespace {

std::map<const engine::ParamGroup*, int> trainable_indices(const engine::Engine& engine) {
  std::map<const engine::ParamGroup*, int> indices;
  for (const auto* group : engine.trainable_groups()) {
    indices.emplace(group, static_cast<int>(indices.size()));
  }
  return indices;
}

const engine::Piece* own_piece(const ModelTensor& tensor) {
  for (const auto& piece : tensor.group->pieces()) {
    if (piece.slot == tensor.slot) return &piece;
  }
  return nullptr;
}

// What a tensor is filled by; one of a device block by block.
stored::WantedRange range_for(const at::Tensor& target) {
  stored::WantedRange range;
  if (target.is_cpu()) {
    range.target = target;
    return range;
  }
  range.target = ElementSpan(nullptr, target.numel(), target.scalar_type());
  range.put = [target](int64_t begin, const ElementSpan& values) {
    const at::NoGradGuard no_grad;  // is the thread's own
    target.narrow(0, begin, values.numel)
        .copy_(at::from_blob(values.data, {values.numel}, values.dtype));
  };
  return range;
}

}  // namespace

LoadPlan::LoadPlan(const stored::Manifest& manifest, const std::string& folder,
                   const engine::Engine& engine, const optim::OptimizerStates* states)
    : manifest_(manifest), folder_(folder) {
  for (const auto& file : manifest.files) {
    files_.push_back({fmt::format("{}/{}", folder, file.name), file.bytes, &file.checksums});
  }
  const auto tensors = model_tensors(engine);
  const auto matches = match_tensors(manifest, tensors, states, folder);
  const auto indices = trainable_indices(engine);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto& name = tensor.names.front();
    if (matches[i] == nullptr) continue;
    if (const auto part = tensor.own_part()) {
      want(matches[i]->weights, part->begin, part->values, fmt::format("weights of '{}'", name));
      const bool is_copy = tensor.whole.defined() && !tensor.whole.is_alias_of(part->values);
      if (is_copy) staged_.push_back({tensor.whole, part->values});
    }
    const bool is_trained = tensor.group != nullptr && tensor.group->trainable();
    const auto* piece = is_trained && states != nullptr ? own_piece(tensor) : nullptr;
    if (piece == nullptr) continue;
    for (size_t k = 0; k < states->names.size(); ++k) {
      const auto& state = states->names[k];
      const auto& values = states->values.at(indices.at(tensor.group)).at(k);
      want(matches[i]->states.at(state), piece->begin,
           values.narrow(0, piece->shard_offset, piece->numel()),
           fmt::format("{} of '{}'", state, name));
    }
  }
}

std::vector<stored::WantedFile> LoadPlan::take_files() {
  std::erase_if(files_, [](const stored::WantedFile& file) { return file.ranges.empty(); });
  return std::move(files_);
}

void LoadPlan::want(const stored::StoredValues& values, int64_t begin, const at::Tensor& target,
                    const std::string& what) {
  const int64_t end = begin + target.numel();
  const auto size = static_cast<int64_t>(c10::elementSize(values.dtype));
  auto interval =
      std::partition_point(values.intervals.begin(), values.intervals.end(),
                           [&](const stored::StoredInterval& other) { return other.end <= begin; });
  for (; interval != values.intervals.end() && interval->begin < end; ++interval) {
    const int64_t first = std::max(begin, interval->begin);
    const int64_t last = std::min(end, interval->end);
    if (first >= last) continue;
    auto& ranges = files_[static_cast<size_t>(interval->file)].ranges;
    ranges.push_back(range_for(target.narrow(0, first - begin, last - first)));
    ranges.back().offset = interval->offset + (first - interval->begin) * size;
    ranges.back().stored = values.dtype;
    ranges.back().what = what;
  }
}

void LoadPlan::finish() const {
  for (const auto& staged : staged_) {
    staged.target.copy_(staged.values.view(staged.target.sizes()));
  }
}

void LoadPlan::check_files() const {
  std::vector<std::string> missing;
  for (const auto& file : files_) {
    const bool is_missing = !file.ranges.empty() && ::access(file.path.c_str(), F_OK) != 0;
    if (is_missing) missing.push_back(file.path);
  }
  formats::check_input(
      missing.empty() || !manifest_.is_node_local,
      "{}: this rank needs files of other hosts, which it cannot see: {}; load with the "
      "number of ranks and the strategy that saved it, on the same hosts, or copy them here",
      folder_, fmt::join(missing, ", "));
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].ranges.empty()) stored::check_file(manifest_.files[i], folder_);
  }
}

}  // namespace fullshard::checkpoint
