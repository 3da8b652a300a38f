// SPDX-License-Identifier: Apache-2.0
// The weight files of a Hugging Face folder while they are written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/formats/weights/split_files.h"

namespace fullshard::checkpoint {

// Files get their names in finish(), the index last; until then the folder's old weights stand.
// Without it nothing is left behind. Errors name the file.
class WeightsFolder {
 public:
  // With `file_name` all of them are in that file, whatever its size, and other files stay.
  WeightsFolder(std::string folder, const std::vector<TensorPlan>& tensors, int64_t max_file_bytes,
                const std::string& file_name = {});

  // Elements [begin, begin + values.numel()) of a planned tensor, row-major.
  void write_range(const std::string& tensor, int64_t begin, const at::Tensor& values);
  // Afterwards no weight files of an earlier save are in the folder, unless one was named: readers
  // would prefer some.
  void finish();

 private:
  void write_index();
  void remove_stale() const;

  std::string folder_;
  bool is_named_;
  formats::SplitFiles split_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // one per file
  std::map<std::string, SafetensorsWriter*> writer_of_;      // by tensor
};

}  // namespace fullshard::checkpoint
