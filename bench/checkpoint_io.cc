// SPDX-License-Identifier: Apache-2.0
// Saving and loading checkpoints beside the raw disk: the same bytes, the same ranks, one run.
//
//   fullshard launch --ranks 2 -- bench_checkpoint_io DIRECTORY [--model llama-110m] [--reps 3]
//   fullshard launch --ranks 1 -- bench_checkpoint_io DIRECTORY --load-only   what others saved
//
// Times are from the first to the last rank; files are flushed before a save's clock stops and
// dropped from the page cache before a read. Rank 0 prints one line of JSON per measurement, with
// the largest growth of a rank's resident memory meanwhile. The checkpoint stays.
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bench/llama.h"
#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/stored/manifest.h"

namespace fullshard::bench {
namespace {

constexpr int64_t kRawBlock = 16 * kMiB;
constexpr int kSteps = 4;  // that are timed alone, for the slow-down beside a save

struct Arguments {
  std::string directory;
  std::string model = "llama-110m";
  int reps = 3;
  bool load_only = false;
  bool save_only = false;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void drop_from_cache(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Bytes that no disk can make fewer of.
std::string random_block() {
  std::string block(kRawBlock, '\0');
  std::mt19937_64 random(1);
  for (size_t at = 0; at < block.size(); at += 8) {
    const uint64_t number = random();
    block.replace(at, 8, reinterpret_cast<const char*>(&number), 8);
  }
  return block;
}

class Bench {
 public:
  Bench(const World& world, const Arguments& arguments)
      : world_(world),
        arguments_(arguments),
        block_(random_block()),
        model_(LlamaConfig::named(arguments.model)),
        sharded_(shard(model_, world)),
        optimizer_(sharded_, {}) {
    for (int group = 0; group < sharded_.num_groups(); ++group) {
      for (int k = 0; k < 2; ++k) optimizer_.state(group, k).uniform_();
    }
    weight_bytes_ = 4 * sharded_.numel();
    state_bytes_ = 3 * weight_bytes_;
  }

  void run() {
    if (arguments_.save_only) {
      save_checkpoint(folder(), sharded_, optimizer_, {});
      return;
    }
    // As in training: memory that the ranks share counts as a rank's own once it has looked at it.
    if (!arguments_.load_only) train_step();
    for (int rep = 0; rep < arguments_.reps; ++rep) {
      if (!arguments_.load_only) measure_saving(rep);
      if (is_first()) drop_checkpoint();
      time("load, cold", state_bytes_, [&] { load_checkpoint(folder(), sharded_, optimizer_); });
    }
    if (!arguments_.load_only) measure_steps();
    if (is_first()) report();
  }

 private:
  bool is_first() const { return world_.rank() == 0; }
  std::string folder() const { return arguments_.directory + "/step-000001"; }
  std::string full_folder() const { return arguments_.directory + "/full"; }
  std::string raw_path() const {
    return fmt::format("{}/raw-{}", arguments_.directory, world_.rank());
  }

  void measure_saving(int rep) {
    time("raw write with fsync", state_bytes_, [&] { write_raw(state_bytes_ / world_.size()); });
    drop_from_cache(raw_path());
    time("raw read, cold", state_bytes_, [&] { read_raw(); });
    time("raw write with fsync, one rank", weight_bytes_, [&] {
      if (is_first()) write_raw(weight_bytes_);
    });
    ::unlink(raw_path().c_str());
    if (is_first()) stored::remove_checkpoint(folder());
    time("save", state_bytes_,
         [&] { save_checkpoint(folder(), sharded_, optimizer_, {.step = rep}); });
    if (is_first()) ::mkdir(full_folder().c_str(), 0755);
    if (is_first()) ::unlink((full_folder() + "/model.safetensors").c_str());
    time("full save (safetensors, fp32)", weight_bytes_,
         [&] { save_weights(full_folder(), sharded_); });
    if (is_first()) stored::remove_checkpoint(folder());
    time("asynchronous save, until it returns", state_bytes_,
         [&] { saver_.save(folder(), sharded_, optimizer_, {.step = rep}); });
    time("asynchronous save, the rest", state_bytes_, [&] { saver_.finish(); });
  }

  void measure_steps() {
    for (int i = 0; i < 2; ++i) train_step();
    for (int i = 0; i < kSteps; ++i) {
      time("step alone", 0, [&] { train_step(); });
    }
    for (int i = 0; i < kSteps; ++i) {
      time("step beside an asynchronous save, all in all", 0, [&] {
        time_part("asynchronous save beside training, start",
                  [&] { saver_.start(folder(), sharded_, optimizer_, {}); });
        train_step();
        saver_.poll();
      });
      saver_.finish();
    }
    saver_.finish();
  }

  void train_step() {
    if (batches_.empty()) {
      batches_ = random_batches(model_->config.vocabulary, 1, 128, world_.rank());
    }
    const auto& tokens = batches_[0];
    model_(tokens.narrow(1, 0, 128), tokens.narrow(1, 1, 128)).backward();
    sharded_.clip_grad_norm(1.0);
    if (saver_.is_saving()) {
      time_part("asynchronous save beside training, settle", [&] { saver_.settle(); });
    }
    optimizer_.step();
    optimizer_.zero_grad();
  }

  // On this rank alone, within something else.
  void time_part(const std::string& what, const std::function<void()>& act) {
    const auto start = std::chrono::steady_clock::now();
    act();
    found_[what].seconds.push_back(seconds_since(start));
  }

  void time(const std::string& what, int64_t bytes, const std::function<void()>& act) {
    world_.communicator().barrier(what);
    reset_peak();
    const int64_t before = status_bytes("VmRSS");
    const auto start = std::chrono::steady_clock::now();
    act();
    world_.communicator().barrier(what);
    auto& found = found_[what];
    found.seconds.push_back(seconds_since(start));
    found.bytes = bytes;
    const auto grown = world_.communicator().allocate(1, at::kLong);
    grown.fill_(std::max<int64_t>(0, status_bytes("VmHWM") - before));
    world_.communicator().all_reduce(grown, ReduceOp::max, what).wait();
    // The first call gets buffers that later ones find.
    found.grown = std::max(found.grown, grown.item<int64_t>());
  }

  void write_raw(int64_t bytes) const {
    ::unlink(raw_path().c_str());
    auto file = formats::FileHandle::create(raw_path());
    for (int64_t at = 0; at < bytes; at += kRawBlock) {
      file.write_at(at, block_.data(), std::min(kRawBlock, bytes - at));
    }
    file.sync();
  }

  void read_raw() const {
    const auto file = formats::FileHandle::open(raw_path());
    std::string block(kRawBlock, '\0');
    for (int64_t at = 0; at < file.size(); at += kRawBlock) {
      file.read_at(at, block.data(), std::min(kRawBlock, file.size() - at), "raw");
    }
  }

  void drop_checkpoint() const {
    for (const auto& file : stored::read_manifest(folder()).files) {
      drop_from_cache(fmt::format("{}/{}", folder(), file.name));
    }
  }

  void report() {
    for (auto& [what, found] : found_) {
      std::sort(found.seconds.begin(), found.seconds.end());
      const size_t half = found.seconds.size() / 2;
      const size_t below = found.seconds.size() % 2 == 0 ? half - 1 : half;
      const double median = (found.seconds[below] + found.seconds[half]) / 2;
      fmt::print(
          "{{\"what\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"seconds\": {:.4f}, \"mean\": "
          "{:.4f}, \"gb_per_s\": {:.3f}, \"rss_growth\": {}}}\n",
          what, world_.size(), found.bytes, median, found.mean(),
          static_cast<double>(found.bytes) / median / 1e9, found.grown);
    }
  }

  struct Found {
    std::vector<double> seconds;
    int64_t bytes = 0;
    int64_t grown = 0;

    double mean() const {
      double sum = 0;
      for (const double one : seconds) sum += one;
      return sum / static_cast<double>(seconds.size());
    }
  };

  World world_;
  Arguments arguments_;
  std::string block_;
  Llama model_;
  ShardedModel sharded_;
  AdamW optimizer_;
  AsyncSaver saver_;
  std::vector<at::Tensor> batches_;
  int64_t weight_bytes_ = 0;
  int64_t state_bytes_ = 0;  // weights and the optimizer's states
  std::map<std::string, Found> found_;
};

}  // namespace
}  // namespace fullshard::bench

int main(int argc, char** argv) {
  using namespace fullshard;
  bench::Arguments arguments;
  CLI::App app("checkpoints beside the raw disk");
  app.add_option("directory", arguments.directory)->required()->check(CLI::ExistingDirectory);
  app.add_option("--model", arguments.model);
  app.add_option("--reps", arguments.reps);
  app.add_flag("--load-only", arguments.load_only);
  app.add_flag("--save-only", arguments.save_only, "leave a checkpoint and measure nothing");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  try {
    bench::Bench(World::from_environment(), arguments).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
