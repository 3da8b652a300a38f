// SPDX-License-Identifier: Apache-2.0
// How well a model that `fullshard train` wrote does sums it has never seen:
//
//   sums MODEL_FOLDER HELD_OUT_FILE [NUMBER]
//
// Reads lines "12+34=46", lets the model write what follows the '=' (greedily, byte by byte) and
// counts the answers that are right. An example of loading a folder and asking a model for tokens.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fullshard/fullshard.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

namespace {

struct Sum {
  std::string question;  // "12+34="
  std::string answer;    // "46"
};

std::vector<Sum> read_sums(const std::string& path, size_t most) {
  std::ifstream file(path);
  fullshard::check(file.good(), "{}: cannot be read", path);
  std::vector<Sum> sums;
  for (std::string line; sums.size() < most && std::getline(file, line);) {
    const size_t split = line.find('=');
    if (split != std::string::npos) {
      sums.push_back({line.substr(0, split + 1), line.substr(split + 1)});
    }
  }
  return sums;
}

// One byte more for every question; they have the same length.
std::vector<char> next_bytes(fullshard::LanguageModel& model,
                             const std::vector<std::string>& texts) {
  const auto rows = static_cast<int64_t>(texts.size());
  const auto columns = static_cast<int64_t>(texts.front().size());
  at::Tensor ids = at::full({rows, columns}, 0, at::kLong);
  auto values = ids.accessor<int64_t, 2>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      values[row][column] = static_cast<unsigned char>(texts[row][column]);
    }
  }
  const at::Tensor logits = model.forward({.input_ids = ids}).logits;
  const at::Tensor best = logits.select(1, columns - 1).argmax(-1);
  std::vector<char> bytes;
  for (int64_t row = 0; row < rows; ++row) {
    bytes.push_back(static_cast<char>(best[row].item<int64_t>()));
  }
  return bytes;
}

// The texts grow until each has ended its line, or is long enough.
std::vector<std::string> answers_of(fullshard::LanguageModel& model,
                                    const std::vector<std::string>& questions) {
  constexpr size_t kLongest = 8;
  std::vector<std::string> texts = questions;
  for (size_t round = 0; round < kLongest; ++round) {
    const std::vector<char> bytes = next_bytes(model, texts);
    for (size_t row = 0; row < texts.size(); ++row) texts[row] += bytes[row];
  }
  for (size_t row = 0; row < texts.size(); ++row) {
    texts[row] = texts[row].substr(questions[row].size());
    texts[row] = texts[row].substr(0, texts[row].find('\n'));
  }
  return texts;
}

int run(const std::string& folder, const std::string& file, size_t most) {
  const auto source = fullshard::find_model(folder);
  const auto model = fullshard::make_deferred_model(source);
  fullshard::ShardedModel sharded(model, fullshard::World::single(), {});
  fullshard::load_model_weights(folder, *model, sharded);
  model->eval();
  const at::NoGradGuard no_grad;

  std::vector<Sum> sums = read_sums(file, most);
  fullshard::check(!sums.empty(), "{}: has no sums", file);
  std::stable_sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) {
    return a.question.size() < b.question.size();
  });
  size_t right = 0, shown = 0;
  for (size_t begin = 0, end = 0; begin < sums.size(); begin = end) {
    std::vector<std::string> questions;
    while (end < sums.size() && sums[end].question.size() == sums[begin].question.size()) {
      questions.push_back("\n" + sums[end++].question);
    }
    const std::vector<std::string> answers = answers_of(*model, questions);
    for (size_t row = 0; row < answers.size(); ++row) {
      const Sum& sum = sums[begin + row];
      const bool is_right = answers[row] == sum.answer;
      right += is_right;
      if (row % (sums.size() / 8 + 1) == 0 && shown++ < 8) {
        fmt::print("  {}{}{}\n", sum.question, answers[row],
                   is_right ? "" : fmt::format("   (it is {})", sum.answer));
      }
    }
  }
  fmt::print("{} of {} held-out sums are right ({:.1f} %)\n", right, sums.size(),
             100.0 * static_cast<double>(right) / static_cast<double>(sums.size()));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    fullshard::check(count >= 3, "usage: sums MODEL_FOLDER HELD_OUT_FILE [NUMBER]");
    return run(arguments[1], arguments[2], count > 3 ? std::stoul(arguments[3]) : 1000);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", fullshard::error_text(error).c_str());
    return 1;
  }
}
