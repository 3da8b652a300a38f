// SPDX-License-Identifier: Apache-2.0
// Runs that last until they are ended, and what is done to them meanwhile.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {

class LongRuns : public ::testing::Test {
 protected:
  LongRuns() {
    std::string bytes;
    for (int i = 0; i < 4000; ++i) bytes += {static_cast<char>(3 + i * i % 7), '\0'};
    folder_.write("t.bin", bytes);
  }

  static std::string words(const std::string& output, const std::string& steps) {
    return "train --model " FULLSHARD_SOURCE_DIR
           "/tests/fixtures/models/llama --data t.bin --sequence-length 16 --micro-batch 2 "
           "--no-save-model --output " +
           output + " --steps " + steps + " ";
  }
  static std::string endless(const std::string& output) { return words(output, "100000000"); }
  static std::string short_run(const std::string& output) {
    return words(output, "3") + "--ranks 1 ";
  }

  launch::Ended run(const std::string& command) const {
    return launch::shell(prelude() + "fullshard " + command);
  }

  // Starts the command, does `meanwhile`, and returns the command's exit status and output. There
  // $launcher is its process, $(ranks) are those of its ranks, in their order, and gone waits for
  // the ends of some.
  launch::Ended run_and(const std::string& command, const std::string& meanwhile) const {
    const launch::Ended ended = launch::shell(
        prelude() + launch::kHearsInterrupts + "fullshard " + command +
        " > said 2>&1 & launcher=$!; "
        "ranks() { for child in $(cat /proc/$launcher/task/*/children); do case \"$(tr '\\0' ' ' < "
        "/proc/$child/cmdline)\" in *fullshard-core*) printf '%s ' $child;; esac; done | sed 's/ "
        "$//'; }; " +
        // Threads of a zombie may still hold its files.
        "gone() { for rank in \"$@\"; do until ! [ -e /proc/$rank ] || { grep -q ') Z' "
        "/proc/$rank/stat && [ $(ls /proc/$rank/task | wc -l) -le 1 ]; }; do sleep 0.02; done; "
        "done; }; " +
        meanwhile + "; wait $launcher; echo \"status $?\" > status; cat said");
    launch::Ended result{.status = -1, .output = ended.output};
    std::istringstream(folder_.read("status").substr(sizeof "status")) >> result.status;
    return result;
  }

  // Waits until a line of metrics, or a checkpoint, is there; not when the run has ended without.
  static std::string until_steps(const std::string& output) {
    return "until [ -s " + output +
           "/metrics.jsonl ] || ! kill -0 $launcher; do sleep 0.05; done; ";
  }
  static std::string until_checkpoint(const std::string& output) {
    return "until [ -s " + output +
           "/checkpoints/latest ] || ! kill -0 $launcher; do sleep 0.05; done; ";
  }

  static std::string kill_all() { return "all=$(ranks); kill -9 $launcher; gone $all"; }

  nlohmann::json record_of(const std::string& output) const {
    return nlohmann::json::parse(folder_.read(output + "/run.json"), nullptr, false);
  }
  int64_t last_step_of(const std::string& output) const {
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    int64_t step = 0;
    for (std::string line; std::getline(lines, line);) {
      step = nlohmann::json::parse(line)["step"].get<int64_t>();
    }
    return step;
  }
  static std::string step_name(int64_t step) {
    const std::string digits = std::to_string(step);
    return "step-" + std::string(6 - std::min<size_t>(6, digits.size()), '0') + digits;
  }

  // What a line of the shell begins with.
  std::string prelude() const {
    return "cd " + folder_.path() +
           "; unset XDG_CONFIG_HOME FULLSHARD_CONFIG; export HOME=" + folder_.path() +
           " OMP_NUM_THREADS=1; ";
  }

  launch::TemporaryFolder folder_;
};

}  // namespace fullshard::cli
