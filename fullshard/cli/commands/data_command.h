// SPDX-License-Identifier: Apache-2.0
// fullshard data [tokenize|inspect|make] …
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fullshard::cli {

class DataCommand {
 public:
  explicit DataCommand(CLI::App& app);
  DataCommand(const DataCommand&) = delete;  // the parser writes into it
  DataCommand& operator=(const DataCommand&) = delete;

  bool was_chosen() const;
  int run() const;  // returns the exit status

 private:
  void add_tokenize();
  void add_inspect();
  void add_make();
  int tokenize() const;
  int inspect_file() const;
  int make() const;

  CLI::App* command_;
  CLI::App* tokenize_ = nullptr;
  CLI::App* inspect_ = nullptr;
  CLI::App* make_ = nullptr;
  std::vector<std::string> paths_;
  std::string tokenizer_;
  std::string output_;
  std::string format_ = "fullshard";
  std::string field_ = "text";
  int num_threads_ = 0;
  std::string file_;
  std::string dtype_;
  int64_t vocabulary_ = 0;
  int64_t num_frequent_ = 10;
  bool json_ = false;
  std::string kind_ = "sums";
  int64_t samples_ = 10'000;
  uint64_t seed_ = 0;
  std::string held_out_;
  int64_t held_out_samples_ = 0;
};

}  // namespace fullshard::cli
