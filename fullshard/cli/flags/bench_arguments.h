// SPDX-License-Identifier: Apache-2.0
// The flags of `bench comm` and `bench optimizer`, read by the program in front and by
// `fullshard-core`, which measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/cli/flags/launch_flags.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fullshard::cli {

// Parses a flag's values as sizes in bytes, as CLI11 does (64KiB and 64KB are the same), from 1 to
// `most`.
void take_size(CLI::Option& option, uint64_t most);

// `bench comm`, on ranks of one host or several, which are started and found as for `train`.
class CommBenchArguments {
 public:
  struct Options {
    std::string device, backend = "auto", dtype = "fp32";
    std::vector<uint64_t> sizes;  // bytes of the full tensor; empty: the usual ones
    bool quick = false, json = false;
  };

  explicit CommBenchArguments(CLI::App& bench);
  CommBenchArguments(const CommBenchArguments&) = delete;  // the parser writes into it
  CommBenchArguments& operator=(const CommBenchArguments&) = delete;

  bool was_chosen() const;
  const Options& options() const { return options_; }
  std::string device() const;  // cpu or cuda, as requested or as available
  LaunchFlags& launch() { return launch_; }
  const LaunchFlags& launch() const { return launch_; }

 private:
  CLI::App* command_;
  LaunchFlags launch_;
  Options options_;
};

// `bench optimizer`, in one process.
class OptimizerBenchArguments {
 public:
  struct Options {
    std::string optimizer = "AdamW", device, precision = "no";
    double parameters = 0;  // 0: by device and --quick
    int threads = 0;        // 0: as many as a single rank has
    bool quick = false, json = false;
  };

  explicit OptimizerBenchArguments(CLI::App& bench);
  OptimizerBenchArguments(const OptimizerBenchArguments&) = delete;
  OptimizerBenchArguments& operator=(const OptimizerBenchArguments&) = delete;

  bool was_chosen() const;
  const Options& options() const { return options_; }
  std::string device() const;
  int64_t num_parameters() const;

 private:
  CLI::App* command_;
  Options options_;
};

}  // namespace fullshard::cli
