// SPDX-License-Identifier: Apache-2.0
// What a save of one rank has to copy, and whether two saves wrote the same.
#pragma once

#include <c10/core/ScalarType.h>
#include <gtest/gtest.h>

#include <string>

#include "fullshard/checkpoint/model_tensors.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "tests/files.h"

namespace fullshard::testing {

// Masters, two states of AdamW each, and what every rank has whole, of which rank 0 writes one.
inline int64_t bytes_to_save(const ShardedModel& model) {
  const auto& engine = engine::EngineAccess::of(model);
  int64_t bytes = 0;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) {
      const auto element = static_cast<int64_t>(c10::elementSize(group->spec().master_dtype));
      const int64_t states = group->trainable() ? 2 * 4 : 0;  // in fp32
      bytes += group->layout().shard_numel() * (element + states);
    }
  }
  if (model.mesh().world().rank() != 0) return bytes;
  for (const auto& tensor : checkpoint::model_tensors(engine)) {
    if (tensor.group == nullptr) {
      bytes += tensor.numel() * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    }
  }
  return bytes;
}

inline void expect_same_files(const std::string& found, const std::string& expected,
                              int num_files) {
  int compared = 0;
  for (const auto& name : entries_of(expected)) {
    if (!name.ends_with(".bin")) continue;
    EXPECT_TRUE(read_file(found + "/" + name) == read_file(expected + "/" + name)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, num_files);
}

}  // namespace fullshard::testing
