// SPDX-License-Identifier: Apache-2.0
// The weights of a checkpoint as files that need no training program: what zero_to_fp32.py makes,
// from any kind of checkpoint.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::stored {

struct ExportOptions {
  // The dtype for floating-point tensors; nothing: as stored. Others always keep theirs.
  std::optional<at::ScalarType> dtype = at::kFloat;
  int64_t max_file_bytes = 5'000'000'000;  // above this: several files with an index
  bool safetensors = false;                // otherwise files of torch.load
  int num_threads = 4;
  // False: an existing file, or anything in the folder, is an Error of kind usage.
  bool overwrites = true;
};

struct ExportResult {
  std::vector<std::string> files;  // with their folder, the index last
  int64_t num_tensors = 0;
  int64_t bytes = 0;        // of the tensors
  int64_t block_bytes = 0;  // the most that was held of them at one time
};

// `out` is a folder, created if it does not exist, or a file that ends in .bin or .safetensors,
// which decides the format. Tensors are streamed in blocks of 4 MiB: one for each of `num_threads`
// is held, and 4 MiB more where a source needs it. Tied names share their values in .bin and are
// written once, under the name they are tied to, in .safetensors. Nothing has its name before it is
// complete and flushed to the device; where that fails no new folder is left behind.
ExportResult export_weights(const AnyCheckpoint& checkpoint, const std::string& out,
                            const ExportOptions& options = {});

}  // namespace fullshard::stored
