// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/save_plan.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/formats/element_type.h"

namespace fullshard::checkpoint {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string strategy_text(const ShardingOptions& options) {
  if (options.zero_stage) return fmt::format("stage {}", *options.zero_stage);
  return std::string(name_of(options.strategy));
}

auto parts_of(const at::Tensor& values) {
  return [values](int64_t first, int64_t numel) { return values.narrow(0, first, numel); };
}

void check_storable(const std::vector<ModelTensor>& tensors) {
  for (const auto& tensor : tensors) {
    check(find_element_type(tensor.dtype) != nullptr,
          "save_checkpoint: '{}' is of type {}, which checkpoints do not hold",
          tensor.names.front(), c10::toString(tensor.dtype));
  }
}

}  // namespace

bool Writers::writes_shard(int rank) const {
  return writer_of_shard(mesh_.shard_of(rank), host_of(rank)) == rank;
}

bool Writers::writes_whole(int rank) const { return writer_of_whole(host_of(rank)) == rank; }

int Writers::writer_of_shard(int shard, int host) const {
  int first = -1;  // of all hosts
  for (int rank = 0; rank < mesh_.world().size(); ++rank) {
    if (mesh_.shard_of(rank) != shard) continue;
    if (host_of(rank) == host) return rank;
    if (first < 0) first = rank;
  }
  return first;
}

int Writers::writer_of_whole(int host) const {
  int rank = 0;
  while (host_of(rank) != host) ++rank;
  return rank;
}

SavePlan::SavePlan(const engine::Engine& engine, const optim::OptimizerStates* states,
                   bool is_node_local, bool leaves_out_frozen)
    : engine_(engine),
      states_(states),
      writers_(engine.mesh(), is_node_local),
      leaves_out_frozen_(leaves_out_frozen),
      tensors_(model_tensors(engine)) {
  if (leaves_out_frozen) std::erase_if(tensors_, &is_frozen);
  check_storable(tensors_);
  int num_trainable = 0;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) {
      if (leaves_out_frozen && !group->trainable()) continue;
      groups_.push_back({group.get(), group->trainable() ? num_trainable++ : -1});
    }
  }
}

int SavePlan::num_states() const {
  return states_ == nullptr ? 0 : static_cast<int>(states_->names.size());
}

std::string SavePlan::file_name(int rank, int kind) const {
  const auto name = kind == kWeights ? "weights" : states_->names.at(kind);
  return fmt::format("{}-{:05}.bin", name, rank);
}

SavePlan::ValuesOf SavePlan::values(const Group& group, int kind) const {
  if (kind == kWeights) {
    return
        [group = group.group](int64_t first, int64_t numel) { return group->master(first, numel); };
  }
  return parts_of(states_->values.at(group.trainable).at(kind));
}

std::optional<at::ScalarType> SavePlan::dtype(const Group& group, int kind) const {
  if (kind == kWeights) return group.group->spec().master_dtype;
  if (group.trainable < 0) return std::nullopt;
  return states_->values.at(group.trainable).at(kind).scalar_type();
}

SavePlan::FileLayout SavePlan::lay_out(int rank, int kind) const {
  FileLayout layout;
  const auto add = [&](int64_t numel, at::ScalarType dtype) {
    const Place place{layout.bytes, dtype, bytes_of(numel, dtype)};
    layout.bytes = round_up(layout.bytes + place.bytes, stored::kPieceAlign);
    return place;
  };
  const bool has_shard = writers_.writes_shard(rank);
  for (const auto& group : groups_) {
    const auto stored = has_shard ? dtype(group, kind) : std::nullopt;
    layout.groups.push_back(stored ? add(group.group->layout().shard_numel(), *stored) : Place{});
  }
  const bool has_whole = kind == kWeights && writers_.writes_whole(rank);
  for (const auto& tensor : tensors_) {
    const bool is_in = has_whole && tensor.group == nullptr;
    layout.tensors.push_back(is_in ? add(tensor.numel(), tensor.dtype) : Place{});
  }
  return layout;
}

stored::ByteSpan SavePlan::device_span(const Place& place, ValuesOf values,
                                       SnapshotCopies& copies) {
  const auto size = bytes_of(1, place.dtype);
  const auto begin_copy = [size, values = std::move(values), &copies](int64_t begin, int64_t count,
                                                                      char* target) {
    copies.begin([&] { return values(begin / size, count / size); }, count, target);
  };
  return {nullptr, place.bytes, begin_copy};
}

bool SavePlan::is_on_disk(const Group& group, int kind) {
  if (kind != kWeights) return group.group->spec().residence.states == tiers::Tier::disk;
  const auto parts = group.group->master_parts();
  return std::any_of(parts.begin(), parts.end(),
                     [](const engine::MasterPart& part) { return part.tier == tiers::Tier::disk; });
}

std::vector<SavePlan::OwnFile> SavePlan::own_files(bool copies_whole,
                                                   SnapshotCopies* copies) const {
  const int rank = engine_.mesh().world().rank();
  std::vector<OwnFile> files;
  for (int kind = kWeights; kind < num_states(); ++kind) {
    const auto layout = lay_out(rank, kind);
    if (layout.bytes == 0) continue;
    OwnFile file{file_name(rank, kind), {}, {}};
    const auto add = [&](const Place& place, const ValuesOf& values, bool is_on_disk) {
      if (copies != nullptr) {
        file.content.push_back(device_span(place, values, *copies));
      } else {
        file.held.push_back(values(0, place.bytes / bytes_of(1, place.dtype)));
        file.content.push_back({file.held.back().data_ptr(), place.bytes});
      }
      file.content.back().is_on_disk = is_on_disk;
      file.content.push_back({nullptr, round_up(place.bytes, stored::kPieceAlign) - place.bytes});
    };
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (layout.groups[i].offset < 0) continue;
      add(layout.groups[i], values(groups_[i], kind), is_on_disk(groups_[i], kind));
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (layout.tensors[i].offset < 0) continue;
      const auto values = tensors_[i].own_part()->values;
      add(layout.tensors[i], parts_of(copies_whole ? values.clone() : values), false);
    }
    files.push_back(std::move(file));
  }
  return files;
}

stored::StoredValues& SavePlan::stored(stored::ManifestTensor& tensor, int kind) const {
  return kind == kWeights ? tensor.weights : tensor.states[states_->names.at(kind)];
}

int SavePlan::file_index(int rank, int kind, const FileLayout& layout,
                         stored::Manifest& manifest) const {
  const auto name = file_name(rank, kind);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    if (manifest.files[i].name == name) return static_cast<int>(i);
  }
  manifest.files.push_back({name, rank, engine_.mesh().world().host_of(rank), layout.bytes, {}});
  return static_cast<int>(manifest.files.size()) - 1;
}

void SavePlan::add_intervals(int kind, stored::Manifest& manifest) const {
  const auto& mesh = engine_.mesh();
  const int host = writers_.is_node_local() ? mesh.world().host_of(mesh.world().rank()) : 0;
  std::map<std::pair<const engine::ParamGroup*, int>, size_t> tensor_of;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].group != nullptr) tensor_of[{tensors_[i].group, tensors_[i].slot}] = i;
  }
  for (int shard = 0; shard < mesh.num_shards(); ++shard) {
    const int rank = writers_.writer_of_shard(shard, host);
    const auto layout = lay_out(rank, kind);
    if (layout.bytes == 0) continue;
    const int file = file_index(rank, kind, layout, manifest);
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto& place = layout.groups[i];
      if (place.offset < 0) continue;
      const auto* group = groups_[i].group;
      for (const auto& piece : group->layout().pieces(shard)) {
        auto& values = stored(manifest.tensors[tensor_of.at({group, piece.slot})], kind);
        values.dtype = place.dtype;
        values.intervals.push_back({file, piece.begin, piece.end,
                                    place.offset + bytes_of(piece.shard_offset, place.dtype)});
      }
    }
  }
  if (kind != kWeights) return;
  const int rank = writers_.writer_of_whole(host);
  const auto layout = lay_out(rank, kind);
  if (layout.bytes == 0) return;
  const int file = file_index(rank, kind, layout, manifest);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& place = layout.tensors[i];
    if (place.offset < 0) continue;
    auto& values = manifest.tensors[i].weights;
    values.dtype = place.dtype;
    if (tensors_[i].numel() > 0) {
      values.intervals.push_back({file, 0, tensors_[i].numel(), place.offset});
    }
  }
}

stored::Manifest SavePlan::manifest() const {
  stored::Manifest manifest;
  manifest.num_ranks = engine_.mesh().world().size();
  manifest.num_shards = engine_.mesh().num_shards();
  manifest.strategy = strategy_text(engine_.options().sharding);
  manifest.is_node_local = writers_.is_node_local();
  manifest.leaves_out_frozen = leaves_out_frozen_;
  if (states_ != nullptr) {
    manifest.optimizer = {.name = states_->name,
                          .num_steps = states_->num_steps,
                          .states = states_->names,
                          .lrs = states_->lrs,
                          .base_lrs = states_->base_lrs,
                          .momentum = states_->momentum,
                          .beta2 = states_->beta2};
  }
  for (const auto& tensor : tensors_) {
    stored::ManifestTensor stored_tensor;
    stored_tensor.names = tensor.names;
    stored_tensor.shape = tensor.shape;
    stored_tensor.is_buffer = tensor.is_buffer;
    manifest.tensors.push_back(std::move(stored_tensor));
  }
  for (int kind = kWeights; kind < num_states(); ++kind) add_intervals(kind, manifest);
  return manifest;
}

}  // namespace fullshard::checkpoint
