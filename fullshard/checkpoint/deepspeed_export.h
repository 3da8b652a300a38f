// SPDX-License-Identifier: Apache-2.0
// A checkpoint in DeepSpeed's layout, for programs that read that: zero_to_fp32.py and what is
// built on it.
#pragma once

#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::checkpoint {

// Makes OUT/latest and OUT/TAG with the files of one ZeRO-2 rank: fp32 weights and the states of
// the optimizer flat, in the order of names. Parameters without states are frozen ones when others
// have some; tensors that are not floating are buffers. Values are streamed, 4 MiB at a time. OUT
// is made when it is not there; OUT/TAG must not be, or with `overwrites` is replaced. It has its
// name when it is complete, and `latest` is written after that. Gives the files.
std::vector<std::string> export_deepspeed(const stored::AnyCheckpoint& checkpoint,
                                          const std::string& out, const std::string& tag,
                                          bool overwrites = false);

}  // namespace fullshard::checkpoint
