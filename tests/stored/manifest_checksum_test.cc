// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/manifest_checksum.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/stored/manifest.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;

// With a value for everything that a manifest can say.
stored::Manifest full_manifest() {
  stored::Manifest manifest;
  manifest.saved_at = 1700000000000;
  manifest.num_ranks = manifest.num_shards = 2;
  manifest.strategy = "FULL_SHARD";
  manifest.optimizer = stored::StoredOptimizer{.name = "AdamW",
                                               .num_steps = 7,
                                               .states = {"exp_avg"},
                                               .lrs = {1e-3, 2e-3},
                                               .momentum = 0.9,
                                               .beta2 = 0.999};
  manifest.files = {{.name = "weights-00000.bin", .rank = 0, .bytes = 40, .checksums = {1}},
                    {.name = "exp_avg-00001.bin", .rank = 1, .bytes = 40, .checksums = {2}}};
  stored::ManifestTensor tensor{.names = {"w", "tied"}, .shape = {2, 5}};
  tensor.weights.intervals = {{0, 0, 10, 0}};
  tensor.states["exp_avg"].intervals = {{1, 0, 10, 0}};
  tensor.counts = {{"step", 7}};
  manifest.tensors = {tensor};
  manifest.progress = {.step = 9, .num_skipped = 2, .scheduler_steps = 7};
  manifest.progress.loss_scale = {
      .scale = 1024, .iteration = 9, .last_overflow = 3, .hysteresis = 1};
  manifest.progress.data = {9, 1};
  manifest.progress.best = {8, 1.5};
  manifest.progress.extra = R"({"model": {"config": "{}", "names": {}}, "seed": 3})";
  manifest.rng = {"00ff", "01ee"};
  return manifest;
}

std::string refusal(const std::string& text) {
  return message_of([&] { (void)stored::parse_manifest(text, "manifest.json"); });
}

const std::string kDamaged =
    "manifest.json: its checksum does not match its contents; the file is damaged or was changed: "
    "copy it again or use another checkpoint";
const std::string kMissing =
    "manifest.json: has version 2 but no 'manifest_checksum' at its end; the file is damaged or "
    "was changed: copy it again or use another checkpoint";

// Places of all numbers, texts and truth values.
void find_scalars(const json& value, const json::json_pointer& at,
                  std::vector<json::json_pointer>& found) {
  if (!value.is_structured()) found.push_back(at);
  if (value.is_object()) {
    for (const auto& item : value.items()) find_scalars(item.value(), at / item.key(), found);
  }
  for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
    find_scalars(value[i], at / i, found);
  }
}

json changed(const json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>() + 1;
  if (value.is_number()) return value.get<double>() * 2;
  return value.get<std::string>() + "0";
}

TEST(ManifestChecksum, SeesAChangeOfAnyScalar) {
  const std::string text = stored::manifest_text(full_manifest());
  EXPECT_EQ(refusal(text), "no error");
  const std::string tail = text.substr(text.rfind(",\"manifest_checksum\""));
  auto original = json::parse(text);
  original.erase(stored::kManifestChecksum);
  std::vector<json::json_pointer> scalars;
  find_scalars(original, json::json_pointer(), scalars);
  EXPECT_GT(scalars.size(), 50U);
  for (const auto& scalar : scalars) {
    auto manifest = original;
    manifest[scalar] = changed(manifest[scalar]);
    std::string edited = manifest.dump();
    edited.pop_back();
    EXPECT_EQ(refusal(edited + tail), kDamaged) << scalar.to_string();
  }
}

TEST(ManifestChecksum, SeesAChangeOfAnyByte) {
  const std::string text = stored::manifest_text(full_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      EXPECT_NE(refusal(flipped), "no error") << "byte " << i << " bit " << bit;
    }
  }
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_NE(refusal(text.substr(0, bytes)), "no error") << bytes;
  }
}

TEST(ManifestChecksum, MayNotBeTakenAway) {
  auto manifest = json::parse(stored::manifest_text(full_manifest()));
  manifest.erase(stored::kManifestChecksum);
  EXPECT_EQ(refusal(manifest.dump() + "\n"), kMissing);
  manifest[stored::kManifestChecksum] = "00000000";  // not where it belongs
  EXPECT_EQ(refusal(manifest.dump() + "\n"), kMissing);
}

TEST(ManifestChecksum, OlderVersionsHaveNone) {
  auto manifest = json::parse(stored::manifest_text(full_manifest()));
  manifest.erase(stored::kManifestChecksum);
  manifest["version"] = 1;
  const stored::Manifest parsed = stored::parse_manifest(manifest.dump() + "\n", "manifest.json");
  EXPECT_FALSE(parsed.has_checksum());
  EXPECT_EQ(parsed.progress.step, 9);
  EXPECT_TRUE(stored::parse_manifest(stored::manifest_text(full_manifest()), "manifest.json")
                  .has_checksum());
  // One that says that it is older and carries a checksum was changed.
  std::string text = stored::manifest_text(full_manifest());
  text.replace(text.find("\"version\":2"), 11, "\"version\":1");
  EXPECT_EQ(refusal(text), kDamaged);
}

TEST(ManifestChecksum, EverythingComesBack) {
  const std::string text = stored::manifest_text(full_manifest());
  EXPECT_EQ(stored::manifest_text(stored::parse_manifest(text, "manifest.json")), text);
}

}  // namespace
}  // namespace fullshard::testing
