// SPDX-License-Identifier: Apache-2.0
// Opens what `--data` names as a data set for a task.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"
#include "fullshard/data/documents/loss_on.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard {

enum class Task { causal_lm, masked_lm, translation, classification };

struct DataOptions {
  // Files, folders or data sets in the Hugging Face cache; content and ending tell the kind.
  std::vector<std::string> paths = {};
  std::string split = "train";  // or validation: for a data set in that cache
  Task task = Task::causal_lm;
  int64_t sequence_length = 512;
  int64_t target_length = 0;         // translation; 0: as sequence_length
  std::string text_field = "text";   // JSONL
  std::string source_language = {};  // {"translation": {"en": …, "ro": …}}
  std::string target_language = {};
  std::string source_prefix = {};  // "translate English to Romanian: "
  int64_t max_samples = 0;         // 0: all; for data sets that are mixed, of all together
  double mask_probability = 0.15;  // masked-lm: of tokens; 80 % [MASK], 10 % random, 10 % kept
  int64_t vocabulary = 0;  // of the model; a token beyond it is an error that names file and offset
  std::string cache_folder = {};  // where tokenised text may be kept; empty: in memory
  std::string token_dtype = {};   // "uint16", "uint32"; empty: as the file says, else uint16
  // causal-lm: rows of JSON are separate documents, and not parts of one stream, if any of them is
  // a conversation or has a completion, or if one of these options is given.
  std::optional<LossOn> loss_on = {};
  bool packs = false;  // several documents in a sequence, each seeing only itself
  std::vector<std::string> classes = {};  // classification: the model's, by their numbers
  std::string chat_folder = {};           // has the chat template that turns messages into text
  int num_threads = 0;                    // for tokenising; 0: as many as there are allowed cores
  // The order that the run asks for; mixed data sets warn if they cannot be read in it.
  Order order = Order::shuffled;
};

// `tokenizer` may be null for causal_lm on token files; otherwise it must outlive the data set.
// Errors are of the kind `input`.
std::unique_ptr<Dataset> open_data(const DataOptions& options, const Tokenizer* tokenizer);

struct OpenedData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out = {};  // null: nothing is held out
};

// As open_data; but paths may carry weights ("chat.jsonl:0.7": each is then a separate data set,
// and they are mixed), and a share of each data set is held out; 0: none. `seed` draws both.
OpenedData open_mixed_data(const DataOptions& options, const Tokenizer* tokenizer,
                           double held_out_share, uint64_t seed);

}  // namespace fullshard
