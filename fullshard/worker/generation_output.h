// SPDX-License-Identifier: Apache-2.0
// Where generated sequences go: lines of JSON, each written as a whole and at once, so that
// finished sequences are not lost, whatever happens later.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "fullshard/generation/sequence.h"

namespace fullshard::worker {

// What a line has in addition to the sequence.
struct LineFacts {
  nlohmann::ordered_json prompt;  // its text, or its tokens
  bool has_text = false;
  bool is_one_of_several = false;
  bool is_scored = false;
  int rank = 0;
  double seconds = 0;  // of the batch that it was made in
};

// With a newline at its end.
std::string line_of(const GeneratedSequence& sequence, const LineFacts& facts);

class GenerationOutput {
 public:
  // To a new file, or for an empty path to standard output. A file that holds something is an Error
  // of kind usage unless it may be overwritten: an earlier run's answers are not lost by a mistake.
  explicit GenerationOutput(const std::string& path, bool overwrites = false);
  ~GenerationOutput();
  GenerationOutput(const GenerationOutput&) = delete;
  GenerationOutput& operator=(const GenerationOutput&) = delete;

  // A failed write is an Error. A regular file then ends with the last complete line.
  void write(const std::string& text);

 private:
  void take_back(size_t bytes) const;

  std::string name_;
  int descriptor_;
};

}  // namespace fullshard::worker
