// SPDX-License-Identifier: Apache-2.0
// A DeepSpeed ZeRO checkpoint (stages 1, 2 and 3) as named tensors: fp32 weights, frozen parameters
// and buffers, and the states of the optimizer.
//
// Stages 1 and 2: a group's parameters lie one after the other (param_shapes gives the order, with
// param_alignment_paddings between them); every rank holds an equal part of that, the padding at
// the end not saved for weights but for states.
// Stage 3: every parameter is cut into ceil(numel / ranks) per rank, padded at its own end; a
// rank's parts lie one after the other in its flat groups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/foreign/deepspeed_files.h"
#include "fullshard/formats/torch/interval_source.h"
#include "fullshard/formats/torch/saved_progress.h"

namespace fullshard::formats {

class DeepSpeedFolder {
 public:
  // `path` is the folder with `latest`, or the one of a tag. All metadata of the files are read and
  // checked, and nothing else.
  explicit DeepSpeedFolder(const std::string& path, const std::string& tag = "");

  const std::string& folder() const { return files_.folder; }
  const std::string& tag() const { return files_.tag; }
  int stage() const { return stage_; }
  int num_ranks() const { return static_cast<int>(files_.optimizers.size()); }
  int64_t num_steps() const { return num_steps_; }
  int64_t num_skipped() const { return num_skipped_; }     // of them
  int64_t optimizer_steps() const;                         // as the optimizer itself counts them
  const std::string& version() const { return version_; }  // of DeepSpeed; "" if not stored
  std::optional<SavedLossScale> loss_scale() const;        // of fp16; a fixed 1 otherwise
  std::optional<int64_t> scheduler_steps() const;          // nothing: there was no schedule

  // Second names of tied parameters and what they are tied to. weights() has both.
  const std::map<std::string, std::string>& tied() const { return tied_; }

  std::unique_ptr<TensorSource> weights(bool with_frozen = true) const;
  const std::vector<std::string>& states() const { return states_; }  // "exp_avg", "exp_avg_sq"
  std::unique_ptr<TensorSource> state(const std::string& name) const;

 private:
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    int64_t numel = 0;
    int64_t padding = 0;  // after it
  };
  using Group = std::vector<Parameter>;
  using Intervals = std::vector<FileInterval>;

  void read_facts();
  void read_groups();
  void read_paddings();
  void read_tied();
  void find_states();
  void check_slices() const;

  const PickleValue& optimizer(size_t rank) const;
  const PickleValue* state_of_group(size_t rank, size_t group) const;
  std::string where_optimizer(size_t rank) const;
  FileInterval flat_tensor(const SharedTorchFile& file, const PickleValue& value,
                           const std::string& where) const;
  Intervals flat_weights(size_t rank) const;  // one per group
  Intervals flat_states(size_t rank, const std::string& name) const;

  using FlatOfRank = std::vector<Intervals>;  // [rank][group]
  void add_trained(IntervalSource& source, const FlatOfRank& flat) const;
  void check_group_numel(size_t group, int64_t found) const;
  void add_cut_by_group(IntervalSource& source, const FlatOfRank& flat) const;
  void add_cut_by_parameter(IntervalSource& source, const FlatOfRank& flat) const;
  void add_buffers(IntervalSource& source) const;
  void add_frozen(IntervalSource& source) const;
  void add_module_rest(IntervalSource& source) const;

  DeepSpeedFiles files_;
  int stage_ = 0;
  int64_t num_steps_ = 0;
  int64_t num_skipped_ = 0;
  std::string version_;
  std::vector<Group> groups_;
  std::map<std::string, std::string> tied_;
  std::vector<std::string> states_;
};

}  // namespace fullshard::formats
