// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint of any kind whole and says what is wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::checkpoint {

struct NotFinite {
  std::string part;  // "weights", or the state's name
  std::string tensor;
  int64_t count = 0;  // of NaN and infinite values
};

struct VerifyResult {
  int64_t num_tensors = 0;                     // of weights and states
  int64_t bytes = 0;                           // of their values
  bool has_sums = false;                       // the files carry checksums, and they are right
  std::vector<std::string> without_sums = {};  // files of them that carry none
  std::vector<NotFinite> not_finite;
};

// Damage is an error of the kind input that names the file and, where one file holds several, the
// tensor. Values that are not finite are no damage but are told.
VerifyResult verify_checkpoint(const stored::AnyCheckpoint& checkpoint);

}  // namespace fullshard::checkpoint
