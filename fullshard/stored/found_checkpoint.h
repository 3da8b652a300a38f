// SPDX-License-Identifier: Apache-2.0
// What kind of checkpoint is at a path. A command detects it once and passes the result to
// everything that it calls.
#pragma once

#include <string>

namespace fullshard::stored {

enum class CheckpointKind {
  own,
  deepspeed,
  dcp,  // torch.distributed.checkpoint
  accelerate,
  weights,  // a file, or a Hugging Face folder, also with the Trainer's other files
};

// Only find(), or a caller that got the result of another process, can make one.
class FoundCheckpoint {
 public:
  // Detects by contents: ours (a checkpoint, a folder of several, or a run's), DeepSpeed's,
  // torch.distributed.checkpoint's, Accelerate's or the Trainer's, Hugging Face's; one file of
  // weights. `tag` selects one of several in the folder; empty: the latest. Errors are of the kind
  // input.
  static FoundCheckpoint find(const std::string& path, const std::string& tag = "");
  // What a run resumes from: our checkpoint takes precedence over others in the same folder, and
  // for DeepSpeed the one that `latest` names is resolved here.
  static FoundCheckpoint find_to_resume(const std::string& path);
  // The result of another rank; no file is read here.
  static FoundCheckpoint as_told(CheckpointKind kind, std::string path);

  CheckpointKind kind() const { return kind_; }
  bool is_own() const { return kind_ == CheckpointKind::own; }
  // The folder or file that holds it: of several of ours, the one that was chosen.
  const std::string& path() const { return path_; }
  const std::string& tag() const { return tag_; }  // of DeepSpeed's; empty: the latest

 private:
  FoundCheckpoint(CheckpointKind kind, std::string path, std::string tag = "");

  CheckpointKind kind_;
  std::string path_;
  std::string tag_;
};

}  // namespace fullshard::stored
