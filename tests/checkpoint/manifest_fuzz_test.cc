// SPDX-License-Identifier: Apache-2.0
// Manifests changed at random, by a seeded generator: each is read, or refused with an Error of the
// kind input. FULLSHARD_FUZZ_SECONDS makes it go on for that long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

#include "fullshard/stored/manifest.h"
#include "fullshard/stored/manifest_checksum.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr int kRounds = 600;

class Mutator {
 public:
  explicit Mutator(std::string original) : original_(std::move(original)) {}

  std::string next() {
    std::string text = original_;
    for (size_t round = 0; round <= below(3); ++round) change(text);
    return text;
  }

 private:
  size_t below(size_t bound) { return random_() % bound; }

  void change(std::string& text) {
    const size_t at = below(text.size());
    const size_t count = std::min(below(12) + 1, text.size() - at);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(random_());
        break;
      case 1:
        text.erase(at, count);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), count));
        break;
      case 3:
        change_number(text, at);
        break;
      default:
        if (below(8) == 0) text.resize(at + 1);
    }
  }

  // Sizes, offsets and counts are where a reader can be led astray.
  void change_number(std::string& text, size_t at) {
    const size_t first = text.find_first_of("0123456789", at);
    if (first == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of("0123456789", first), text.size());
    static const std::vector<std::string> kNumbers = {
        "0", "-1", "1152921504606846976", "9223372036854775807", "1e300", "4096"};
    text.replace(first, end - first, kNumbers[below(kNumbers.size())]);
  }

  std::string original_;
  std::mt19937 random_{77};
};

TEST(ManifestFuzz, IsReadOrRefused) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(2), folder / "one", 1);
  const auto whole = read_file(folder / "one/manifest.json");
  Mutator mutator(whole.substr(0, whole.rfind(",\"manifest_checksum\"")) + "}");
  const char* seconds = std::getenv("FULLSHARD_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(seconds != nullptr ? std::atof(seconds) : 0);
  int refused = 0, rounds = 0;
  for (; rounds < kRounds || std::chrono::steady_clock::now() < end; ++rounds) {
    try {
      // Summed anew, so that what the checksum would refuse is looked at too.
      std::string text = mutator.next();
      if (rounds % 4 != 0 && text.find('}') != std::string::npos) {
        text = stored::with_manifest_checksum(std::move(text));
      }
      (void)stored::parse_manifest(text, "manifest");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("manifest")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4);
}

}  // namespace
}  // namespace fullshard::testing
