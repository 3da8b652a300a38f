// SPDX-License-Identifier: Apache-2.0
// A folder that is written as a whole or not at all: under another name until it is complete.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"

namespace fullshard::train {

// Collective. Makes `folder` anew: rank 0 calls `begin` with the path of a folder without a model,
// then all ranks `write`, and when both are through it gets its name. Of one that is there the
// model's files are replaced, and what others have put beside them stays. What fails on one rank
// fails on all, and nothing is left behind.
void write_folder(const std::string& folder, const ShardedModel& model,
                  const std::function<void(const std::string& made)>& begin,
                  const std::function<void(const std::string& made)>& write);

// The same for one process.
void write_folder(const std::string& folder,
                  const std::function<void(const std::string& made)>& write);

// Removes what write_folder() has made; what others have put there stays, and the folder with it.
void remove_written_folder(const std::string& folder);

bool has_tokenizer(const std::string& folder);
// The files of a tokenizer, out of a model's folder or a file; "bytes" is the tokenizer of bytes,
// and an empty name none. Gives those that were written.
std::vector<std::string> copy_tokenizer(const std::string& from, const std::string& folder);

}  // namespace fullshard::train
