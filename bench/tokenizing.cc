// Encodes the documents of a JSON array, again and again, on one thread: seconds of the best round.
//
//   bench_tokenizing TOKENIZER DOCUMENTS.json ROUNDS
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto tokenizer = fullshard::load_tokenizer(argv[1]);
  std::ifstream file(argv[2]);
  const auto documents = nlohmann::json::parse(file).get<std::vector<std::string>>();
  double best = 1e9;
  uint64_t tokens = 0, sum = 0;
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    tokens = sum = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const auto& document : documents) {
      const auto ids = tokenizer->encode(document, true);
      tokens += ids.size();
      for (const int32_t id : ids) sum = (sum * 31 + static_cast<uint64_t>(id)) % 1000000007;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  fmt::print("{{\"seconds\": {:.6f}, \"tokens\": {}, \"sum\": {}}}\n", best, tokens, sum);
}
