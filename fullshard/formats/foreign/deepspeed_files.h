// SPDX-License-Identifier: Apache-2.0
// The files of a DeepSpeed ZeRO checkpoint:
//
//     DIR/latest                                    the tag, for example global_step100
//     DIR/TAG/mp_rank_00_model_states.pt            stages 1 and 2
//     DIR/TAG/zero_pp_rank_R_mp_rank_00_model_states.pt    stage 3, of every rank
//     DIR/TAG/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt    of every rank
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {

using SharedTorchFile = std::shared_ptr<const TorchFile>;

struct DeepSpeedFiles {
  std::string folder;  // DIR/TAG
  std::string tag;
  std::vector<SharedTorchFile> models = {};      // by rank; one in stages 1 and 2
  std::vector<SharedTorchFile> optimizers = {};  // by rank
};

// `path` is DIR, or DIR/TAG itself.
bool is_deepspeed_folder(const std::string& path);

// DIR/TAG, which must be there; where `path` is DIR and no tag is given, `latest` decides.
std::string find_deepspeed_folder(const std::string& path, const std::string& tag = {});

// Opens all of them. Without a tag `latest` decides. Missing ranks, two files of one rank, files
// that were saved as another rank's and checkpoints of model-parallel or mixture-of-experts runs
// are errors of the kind `input`.
DeepSpeedFiles open_deepspeed_files(const std::string& path, const std::string& tag);

}  // namespace fullshard::formats
