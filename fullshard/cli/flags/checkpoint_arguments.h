// SPDX-License-Identifier: Apache-2.0
// The flags of `fullshard checkpoint`. The program in front and the one that links libtorch read
// the same words by the same table, so help and errors come at once and both agree.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace fullshard::cli {

enum class CheckpointAction {
  inspect,
  verify,
  to_fp32,
  export_model,
  convert,
  diff,
  save,
  merge_lora
};

struct CheckpointCommandOptions {
  CheckpointAction action = CheckpointAction::inspect;
  std::string path{};
  std::string other{};         // diff: the second checkpoint
  std::string name{};          // save: name of the checkpoint
  std::string output{};        // to-fp32, export, convert, merge-lora
  std::string model{};         // merge-lora: the base
  std::string adapter{};       // merge-lora
  std::string tag{};           // which checkpoint of the folder; empty: the latest
  std::string dtype = "fp32";  // export, convert: fp32, bf16, fp16 or keep
  std::string form{};          // convert: safetensors, bin, dcp or deepspeed
  int64_t max_file_bytes = 0;  // more: several files with an index
  bool safetensors = false;    // to-fp32: otherwise files of torch.load
  bool with_frozen = true;     // parameters that were not trained
  double tolerance = 0;        // diff
  bool lists_tensors = true;   // inspect: every tensor, not only the sums
  bool overwrite = false;      // to-fp32, export, convert, merge-lora
  bool json = false;
};

class CheckpointArguments {
 public:
  explicit CheckpointArguments(CLI::App& app);
  CheckpointArguments(const CheckpointArguments&) = delete;  // the parser writes into it
  CheckpointArguments& operator=(const CheckpointArguments&) = delete;

  bool was_chosen() const;
  CheckpointCommandOptions options() const;  // checked

 private:
  CLI::App* add_action(const char* name, const char* help);
  void add_output(CLI::App& action, const char* help);
  void add_merge_lora();
  void add_size(CLI::App& action);
  void add_overwrite(CLI::App& action);

  CLI::App* command_;
  CLI::App* inspect_ = nullptr;
  CLI::App* verify_ = nullptr;
  CLI::App* to_fp32_ = nullptr;
  CLI::App* export_ = nullptr;
  CLI::App* convert_ = nullptr;
  CLI::App* diff_ = nullptr;
  CLI::App* save_ = nullptr;
  CLI::App* merge_lora_ = nullptr;
  CheckpointCommandOptions options_;
  bool debug_ = false;
  std::string max_shard_size_ = "5GB";
  std::string merged_dtype_ = "keep";
};

// "5GB", "500MB", "20KiB", "1000": bytes. Decimal units, as Hugging Face counts, and binary ones.
// `where` begins the message, of the kind usage.
int64_t parse_file_size(const std::string& text, const std::string& where);

}  // namespace fullshard::cli
