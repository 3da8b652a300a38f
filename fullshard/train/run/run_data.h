// SPDX-License-Identifier: Apache-2.0
// The data of a run, opened to fit its model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/config/run_options.h"
#include "fullshard/data/open_data.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard::train {

struct RunData {
  std::string tokenizer_path = {};  // empty: none was found or asked for
  std::unique_ptr<Tokenizer> tokenizer = {};
  Task task = Task::causal_lm;
  int64_t sequence_length = 0;
  std::unique_ptr<Dataset> train = {};
  std::unique_ptr<Dataset> evaluation = {};  // null: none was named

  std::vector<std::string> warnings() const;  // of both
};

// Tokens of an example: what is asked for (0: the usual), which the model's positions must hold.
int64_t sequence_length_of(int64_t asked, const LanguageModel& model);

// A tokenizer, task or sequence length that does not fit the model is an Error.
RunData open_run_data(const RunOptions& options, const std::string& model_folder,
                      const LanguageModel& model);

}  // namespace fullshard::train
