// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/data_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/cli/commands/byte_progress.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/data/inspect.h"
#include "fullshard/data/small_tasks.h"
#include "fullshard/data/text/data_file_kind.h"
#include "fullshard/data/text/tokenise.h"
#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::cli {
namespace {

bool is_same_file(const std::string& left, const std::string& right) {
  struct stat a {};
  struct stat b {};
  return ::stat(left.c_str(), &a) == 0 && ::stat(right.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// Checked before hours of work, not after.
void check_output(const std::string& output, data::TokenFormat format,
                  const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (is_same_file(output, input)) {
      fail_as(ErrorKind::usage, "data: --output {} is also read; name another file", output);
    }
  }
  if (format == data::TokenFormat::nanogpt && !output.ends_with(".bin")) {
    fail_as(ErrorKind::usage,
            "data: --output {}: files of nanogpt have no header; use a name that ends in .bin",
            output);
  }
}

void write_text(const std::string& path, const std::string& text) {
  data::AtomicFile file(path);
  file.append(text);
  file.commit();
}

nlohmann::json as_json(const std::string& file, const data::TokenSummary& summary) {
  const data::TokenLayout& layout = summary.layout;
  nlohmann::json frequent = nlohmann::json::array();
  for (const data::TokenCount& entry : summary.most_frequent) {
    frequent.push_back({{"token", entry.token}, {"count", entry.count}});
  }
  nlohmann::json documents;
  if (layout.num_documents != data::kUnknown) documents = layout.num_documents;
  return {{"file", file},
          {"format", data::name_of(layout.format)},
          {"dtype", layout.dtype()},
          {"tokens", layout.num_tokens},
          {"documents", documents},
          {"min_token", summary.min_token},
          {"max_token", summary.max_token},
          {"distinct_tokens", summary.num_distinct},
          {"most_frequent", frequent}};
}

std::string as_text(const std::string& file, const data::TokenSummary& summary) {
  const data::TokenLayout& layout = summary.layout;
  std::string text =
      fmt::format("{}: {}, {}\n", file, data::name_of(layout.format), layout.dtype());
  text += fmt::format("tokens     {}\n", layout.num_tokens);
  if (layout.num_documents != data::kUnknown) {
    text += fmt::format("documents  {}\n", layout.num_documents);
  }
  text += fmt::format("range      {} to {}, {} different\n", summary.min_token, summary.max_token,
                      summary.num_distinct);
  const int64_t most = summary.most_frequent.empty() ? 1 : summary.most_frequent[0].count;
  for (const data::TokenCount& entry : summary.most_frequent) {
    text += fmt::format(
        "{:>9}  {:>12} {:5.1f} %  {:#<{}}\n", entry.token, entry.count,
        100.0 * static_cast<double>(entry.count) / static_cast<double>(layout.num_tokens), "",
        std::max<int64_t>(1, entry.count * 30 / most));
  }
  return text;
}

}  // namespace

DataCommand::DataCommand(CLI::App& app)
    : command_(app.add_subcommand("data", "tokenize text, look into token files, make a corpus")) {
  command_->require_subcommand(1, 1);
  add_tokenize();
  add_inspect();
  add_make();
}

void DataCommand::add_tokenize() {
  tokenize_ = command_->add_subcommand("tokenize", "write text or JSON files as one token file");
  tokenize_->add_option("path", paths_, "files, or folders of them: .txt, .jsonl, .json")
      ->required();
  tokenize_
      ->add_option("--tokenizer", tokenizer_, "a model's folder, a tokenizer's file, or \"bytes\"")
      ->required();
  tokenize_->add_option("-o,--output", output_, "file to write")->required();
  tokenize_->add_option("--format", format_, "fullshard, nanogpt or llmc")
      ->check(one_of({"fullshard", "nanogpt", "llmc"}))
      ->capture_default_str();
  tokenize_->add_option("--field", field_, "field of JSON objects to read")->capture_default_str();
  tokenize_->add_option("--threads", num_threads_, "all allowed cores if not given")
      ->check(within(1, 4096));
}

void DataCommand::add_inspect() {
  inspect_ = command_->add_subcommand("inspect", "read a whole token file and describe it");
  inspect_->add_option("file", file_, "token file")->required();
  inspect_->add_option("--vocabulary", vocabulary_, "a token beyond it is an error")
      ->check(above_zero());
  inspect_->add_option("--dtype", dtype_, "dtype of a file without header: uint16 or uint32")
      ->check(one_of({"uint16", "uint32"}));
  inspect_->add_option("--top", num_frequent_, "how many of the most frequent tokens to list")
      ->check(at_least_zero())
      ->capture_default_str();
  inspect_->add_flag("--json", json_, "machine-readable output");
}

void DataCommand::add_make() {
  make_ = command_->add_subcommand("make", "write a corpus that a small model learns in minutes");
  make_
      ->add_option("--kind", kind_,
                   "sums; digits: sums of four of them; mixed: also reversing, counting, copying, "
                   "sorting")
      ->check(one_of({"sums", "digits", "mixed"}))
      ->capture_default_str();
  make_->add_option("--samples", samples_, "lines")->check(above_zero())->capture_default_str();
  make_->add_option("--seed", seed_, "another seed, another corpus")->capture_default_str();
  make_->add_option("-o,--output", output_, "text file to write")->required();
  CLI::Option* held_out =
      make_->add_option("--held-out", held_out_, "text file to write: sums that no corpus has");
  make_->add_option("--held-out-samples", held_out_samples_, "a tenth of --samples if not given")
      ->check(above_zero())
      ->needs(held_out);
}

bool DataCommand::was_chosen() const { return command_->parsed(); }

int DataCommand::run() const {
  if (tokenize_->parsed()) return tokenize();
  if (inspect_->parsed()) return inspect_file();
  return make();
}

int DataCommand::tokenize() const {
  const data::TokenFormat format = data::token_format_named(format_);
  data::TokeniseOptions options{
      .files = data::list_files(paths_), .field = field_, .num_threads = num_threads_};
  if (data::are_token_files(options.files)) {
    fail_as(ErrorKind::input, "{}: is already a token file", options.files[0]);
  }
  check_output(output_, format, options.files);
  const std::unique_ptr<Tokenizer> tokenizer =
      load_tokenizer(base::path_or_cached_model(tokenizer_));
  options.separator = tokenizer->eos() ? tokenizer->eos() : tokenizer->sep();
  const int width = data::token_width_for(tokenizer->vocabulary());
  data::TokenWriter writer(data::AtomicFile(output_), format, width);
  {
    ByteProgress progress;
    options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
    data::tokenise(options, *tokenizer, writer);
  }
  if (writer.num_tokens() == 0) fail_as(ErrorKind::input, "{}: gives no tokens", options.files[0]);
  writer.finish();
  fmt::print("{}: {} tokens in {} documents, {}, {}\n", output_, writer.num_tokens(),
             writer.num_documents(), format_, width == 2 ? "uint16" : "uint32");
  return 0;
}

int DataCommand::inspect_file() const {
  if (data::kind_of(file_) != data::FileKind::tokens) {
    fail_as(ErrorKind::input, "{}: is {}, not a token file; 'fullshard data tokenize' makes one",
            file_, data::name_of(data::kind_of(file_)));
  }
  const data::TokenFile file(file_, dtype_, data::Access::sequential);
  const data::TokenSummary summary = data::inspect(file, vocabulary_, num_frequent_);
  fmt::print("{}", json_ ? as_json(file_, summary).dump(2) + "\n" : as_text(file_, summary));
  return 0;
}

int DataCommand::make() const {
  if (output_ == held_out_ || is_same_file(output_, held_out_)) {
    fail_as(ErrorKind::usage, "data: --output and --held-out both name {}", output_);
  }
  const std::map<std::string, data::TaskMix> mixes = {{"sums", data::TaskMix::sums},
                                                      {"digits", data::TaskMix::digits},
                                                      {"mixed", data::TaskMix::mixed}};
  const data::TaskMix mix = mixes.at(kind_);
  write_text(output_, data::make_small_tasks(mix, samples_, seed_));
  fmt::print("{}: {} lines\n", output_, samples_);
  if (held_out_.empty()) return 0;
  const std::string sums = data::make_held_out_sums(
      mix, held_out_samples_ > 0 ? held_out_samples_ : std::max<int64_t>(1, samples_ / 10), seed_);
  write_text(held_out_, sums);
  fmt::print("{}: {} held-out sums\n", held_out_, std::ranges::count(sums, '\n'));
  return 0;
}

}  // namespace fullshard::cli
