// SPDX-License-Identifier: Apache-2.0
// A torch.distributed.checkpoint folder (.metadata and .distcp files) as the weights of a model and
// the states of its optimizer, as written by dcp.save, Accelerate or the Trainer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/foreign/dcp_metadata.h"
#include "fullshard/formats/foreign/state_dict_names.h"
#include "fullshard/formats/tensor_source.h"

namespace fullshard::formats {

bool is_dcp_folder(const std::string& path);

class DcpFolder {
 public:
  explicit DcpFolder(const std::string& path);

  const DcpMetadata& metadata() const { return *metadata_; }

  // What lies under the key "model" ("module", "state_dict"), without it; everything when there
  // is no such key and no optimizer. Null: the folder holds no weights.
  std::unique_ptr<TensorSource> weights() const;
  bool has_weights() const { return !names_.weights.empty(); }
  // "exp_avg", ...: tensors under optimizer.state.NAME.exp_avg (also "optim"), by NAME.
  std::vector<std::string> states() const;
  std::unique_ptr<TensorSource> state(const std::string& name) const;
  // The optimizer's own count; nothing if it is not stored.
  std::optional<int64_t> num_steps() const;

 private:
  void sort_names();

  std::string path_;
  std::shared_ptr<const DcpMetadata> metadata_;
  StateDictNames names_;
};

// What Accelerate's save_state and the Trainer leave: folders pytorch_model_fsdp_0 and optimizer_0.
struct AccelerateFolders {
  std::string model;      // "" when there is none
  std::string optimizer;  // "" when there is none
};
AccelerateFolders find_accelerate_folders(const std::string& path);

}  // namespace fullshard::formats
