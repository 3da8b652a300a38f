// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include "fullshard/text/pipeline/normalizer.h"
#include "fullshard/text/unicode/cluster.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

constexpr size_t kSmallCluster = 5;  // in bytes; larger clusters are split

class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap charsmap) : charsmap_(std::move(charsmap)) {
    for (size_t byte = 0; byte < ascii_.size(); ++byte) {
      const char letter = static_cast<char>(byte);
      if (const auto rule = charsmap_.shortest({&letter, 1})) ascii_[byte] = rule->replacement;
    }
  }

  void rewrite(std::string& text, const GrowthLimit& limit) const override {
    std::string result;
    result.reserve(text.size() + text.size() / 4);
    const auto is_ascii = [&](size_t i) {
      return i >= text.size() || static_cast<unsigned char>(text[i]) < 0x80;
    };
    for (size_t i = 0; i < text.size();) {
      if (is_ascii(i) && is_ascii(i + 1) && text[i] != '\r') {  // a cluster by itself
        append_ascii(text[i++], result);
        limit.check_bytes(result.size());
        continue;
      }
      const size_t length = cluster_length(std::string_view(text).substr(i));
      append_cluster(std::string_view(text).substr(i, length), result);
      limit.check_bytes(result.size());
      i += length;
    }
    text = std::move(result);
  }

 private:
  void append_ascii(char letter, std::string& result) const {
    const auto& replacement = ascii_[static_cast<unsigned char>(letter)];
    if (replacement) {
      result += *replacement;
    } else {
      result += letter;
    }
  }

  // The rule for the shortest beginning replaces a small cluster as a whole. That loses the rest of
  // the cluster; the original does so too.
  void append_cluster(std::string_view cluster, std::string& result) const {
    if (cluster.size() <= kSmallCluster) {
      if (const auto rule = charsmap_.shortest(cluster)) {
        result += rule->replacement;
        return;
      }
    }
    for (size_t i = 0; i < cluster.size();) {
      const auto character = cluster.substr(i, utf8_length(cluster[i]));
      const auto rule = charsmap_.shortest(character);
      result += rule ? rule->replacement : character;
      i += character.size();
    }
  }

  Charsmap charsmap_;
  std::array<std::optional<std::string>, 128> ascii_;
};

}  // namespace

NormalizerPointer precompiled_normalizer(Charsmap charsmap) {
  return std::make_unique<PrecompiledNormalizer>(std::move(charsmap));
}

}  // namespace fullshard::text
