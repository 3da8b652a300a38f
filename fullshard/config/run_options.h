// SPDX-License-Identifier: Apache-2.0
// Options of `train`, `eval`, `compare` and `generate` outside the configuration: which model,
// which data, how long. Plain data; the commands check it against model and data when they open
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/step_interval.h"

namespace fullshard {

// `generate`. Absent values come from the model's generation_config.json.
struct GenerationRunOptions {
  std::optional<std::string> prompt{};
  std::string prompts{};  // a file; empty: standard input
  std::string output{};   // a file of JSON lines; empty: standard output
  std::optional<int64_t> max_new_tokens{};
  std::optional<int64_t> min_new_tokens{};
  bool greedy = false;
  std::optional<double> temperature{};
  std::optional<int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};
  std::optional<int64_t> no_repeat_ngram_size{};
  std::optional<int64_t> num_beams{};
  std::optional<double> length_penalty{};
  std::string early_stopping{};  // true, false, never
  std::optional<int64_t> num_return_sequences{};
  std::vector<std::string> stop{};
  std::optional<int64_t> batch{};
  int64_t prefill_tokens = 512;
  bool logprobs = false;
  bool is_chat = false;  // prompts are what a user says, for the chat template
  // At most this share of the weights stays on the device; the rest is fetched in every step.
  // Absent: all that fit; with offload_param none.
  std::optional<double> resident_share{};
  std::string cache = "auto";  // where keys and values are kept: auto, device or host
};

// LoRA, as given by flags; `rank` 0: no LoRA.
struct LoraRunOptions {
  int64_t rank = 0;
  std::optional<double> alpha{};       // absent: 8
  std::optional<double> dropout{};     // absent: 0
  std::vector<std::string> targets{};  // names, or one regular expression; empty: the model's usual
  std::vector<std::string> modules_to_save{};
  bool use_rslora = false;

  bool is_any() const {
    return rank > 0 || alpha || dropout || !targets.empty() || !modules_to_save.empty() ||
           use_rslora;
  }
};

struct RunOptions {
  std::string model{};        // a Hugging Face folder, or the name of a preset
  bool from_scratch = false;  // new weights even if the folder has some
  bool pretrained = false;    // the model must have weights: not a preset
  bool new_head = false;      // a new head even if the folder has one
  // causal-lm, masked-lm, translation, classification; empty: what the model is for
  std::string task{};
  std::string tokenizer{};  // empty: the model's folder
  LoraRunOptions lora{};
  std::string adapter{};         // a PEFT folder: to run with, or to continue from
  std::string base_precision{};  // int8 for frozen linear layers; empty: the compute dtype
  bool only_computes = false;    // nothing is trained: eval, generate

  std::vector<std::string> data{};       // PATH, or PATH:WEIGHT of each
  std::vector<std::string> eval_data{};  // PATH
  double validation_split = 0;           // share of the data that is held out for evaluation
  int64_t sequence_length = 0;           // 0: the model's, at most 512
  int64_t target_length = 0;             // translation; 0: as sequence_length
  std::string text_field = "text";
  std::string loss_on{};  // completions, all; empty: completions where rows have them
  bool packing = false;   // several documents side by side in a sequence
  std::string source_language{};
  std::string target_language{};
  std::string source_prefix{};
  int64_t max_samples = 0;  // 0: all
  // For the evaluation data; 0: all, absent: as max_samples.
  std::optional<int64_t> max_eval_samples{};
  std::string cache_folder{};  // where tokenised text is kept; empty: nowhere
  double mask_probability = 0.15;
  double label_smoothing = 0;
  std::string order = "shuffled";
  bool drop_last = false;  // leave out an epoch's last batch if it is not full

  int64_t steps = 0;         // 0: by epochs
  double epochs = 0;         // 0: one epoch, unless steps is set
  bool reduce_once = false;  // a step's micro-batches are added on each rank first
  std::string trace{};       // file for the timeline of rank 0's last steps; empty: none
  bool graphs = true;        // CUDA graphs where the host cannot keep a GPU busy
  bool plans_memory = true;  // before the start; refuses runs that cannot fit
  int64_t log_every = 1;
  StepInterval eval_every{};            // not set: at the end only
  int64_t eval_batches = 0;             // micro-batches per rank; 0: all
  int64_t eval_micro_batch = 0;         // examples of a rank in one forward; 0: as trained
  std::string eval_precision{};         // no, bf16, fp16; empty: as trained
  int64_t early_stopping_patience = 0;  // evaluations; 0: never
  double early_stopping_threshold = 0;
  bool keep_best = false;     // the model of the lowest evaluation loss, as best/
  bool restore_best = false;  // and as model/ at the end
  bool save_model = true;
  StepInterval save_every{};    // between checkpoints; not set: none
  int64_t keep = 0;             // how many checkpoints to keep; 0: all
  bool node_local = false;      // the flag; the configuration has a key for it too
  bool async_save = false;      // checkpoints are written while training continues
  std::string resume = "none";  // auto: the newest whole one of `output`; none; or a folder

  std::vector<std::string> flags_of_auto{};  // given without --auto, the only mode that reads them

  std::string output = "fullshard-run";
  bool overwrite = false;
  uint64_t seed = 42;
  std::string device{};  // cpu, cuda; empty: what is available
  std::string backend = "auto";
  // Seconds that ranks wait for a rank that is alive but late: to meet, to a step's collective,
  // to one of a save or load.
  double init_timeout = 300;
  double step_timeout = 600;
  double checkpoint_timeout = 1800;
  std::string tf32{};  // on, off; empty: libtorch's default
  bool is_deterministic = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;

  GenerationRunOptions generation{};

  // compare
  std::string reference{};
  double tolerance = 1e-4;
};

}  // namespace fullshard
