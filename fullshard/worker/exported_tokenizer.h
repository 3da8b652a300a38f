// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a checkpoint that is exported as a folder for other programs.
#pragma once

#include <string>
#include <vector>

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::worker {

// Copies its files from where they are: the checkpoint's folder, what its run has written, or what
// the run began with. Returns them; a note on standard error names one of the run that is missing.
std::vector<std::string> export_tokenizer(const stored::AnyCheckpoint& checkpoint,
                                          const std::string& folder);

}  // namespace fullshard::worker
