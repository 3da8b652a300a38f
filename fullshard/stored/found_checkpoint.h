// SPDX-License-Identifier: Apache-2.0
// What kind of checkpoint lies at a path. A command looks once; everything that it calls is handed
// what was found.
#pragma once

#include <string>

namespace fullshard::stored {

enum class CheckpointKind {
  own,
  deepspeed,
  dcp,  // torch.distributed.checkpoint
  accelerate,
  weights,  // a file, or a folder of Hugging Face; what the Trainer leaves beside them counts too
};

// A value that only a look, or somebody who tells what another process has found, can make.
class FoundCheckpoint {
 public:
  // By contents: of us (a checkpoint, a folder of several, or a run's), of DeepSpeed, of
  // torch.distributed.checkpoint, of Accelerate or the Trainer, of Hugging Face; one file of
  // weights. `tag` says which of several in the folder; empty: the latest. Errors are of the kind
  // input.
  static FoundCheckpoint find(const std::string& path, const std::string& tag = "");
  // What a run goes on from: one of ours wins over others' in the same folder, and of DeepSpeed's
  // the one that `latest` names is settled here.
  static FoundCheckpoint find_to_resume(const std::string& path);
  // Another rank has looked; nothing is looked at here.
  static FoundCheckpoint as_told(CheckpointKind kind, std::string path);

  CheckpointKind kind() const { return kind_; }
  bool is_own() const { return kind_ == CheckpointKind::own; }
  // The folder or file that holds it: where several of ours lie, the one that was chosen.
  const std::string& path() const { return path_; }
  const std::string& tag() const { return tag_; }  // of DeepSpeed's; empty: the latest

 private:
  FoundCheckpoint(CheckpointKind kind, std::string path, std::string tag = "");

  CheckpointKind kind_;
  std::string path_;
  std::string tag_;
};

}  // namespace fullshard::stored
