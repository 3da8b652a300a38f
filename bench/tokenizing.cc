// SPDX-License-Identifier: Apache-2.0
// Encodes the documents of a JSON array once, on one thread: seconds of processor time. The process
// has just started, so nothing is known from before.
//
//   bench_tokenizing TOKENIZER DOCUMENTS.json
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/text/pipeline/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto tokenizer = fullshard::load_tokenizer(argv[1]);
  std::ifstream file(argv[2]);
  const auto documents = nlohmann::json::parse(file).get<std::vector<std::string>>();
  std::vector<std::vector<int32_t>> ids;
  const std::clock_t start = std::clock();
  for (const auto& document : documents) ids.push_back(tokenizer->encode(document, true));
  const std::clock_t end = std::clock();
  uint64_t tokens = 0, sum = 0;
  for (const auto& one : ids) {
    tokens += one.size();
    for (const int32_t id : one) sum = (sum * 31 + static_cast<uint64_t>(id)) % 1000000007;
  }
  fmt::print("{{\"seconds\": {:.6f}, \"tokens\": {}, \"sum\": {}}}\n",
             static_cast<double>(end - start) / CLOCKS_PER_SEC, tokens, sum);
}
