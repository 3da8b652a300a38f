// SPDX-License-Identifier: Apache-2.0
// A step that rewrites text before it is split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/text/pipeline/growth_limit.h"
#include "fullshard/text/pipeline/pattern.h"
#include "fullshard/text/unicode/charsmap.h"
#include "fullshard/text/unicode/normal_forms.h"

namespace fullshard::text {

// Immutable, so thread-safe. Valid UTF-8 in and out.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Throws Error of kind input when the text would grow beyond the limit.
  void apply(std::string& text, const GrowthLimit& limit) const {
    rewrite(text, limit);
    limit.check_bytes(text.size());
  }
  void apply(std::string& text) const { apply(text, GrowthLimit(text.size())); }

 private:
  // A step that may write many bytes for one checks the limit as it writes.
  virtual void rewrite(std::string& text, const GrowthLimit& limit) const = 0;
};

using NormalizerPointer = std::unique_ptr<const Normalizer>;

struct BertNormalizerOptions {
  bool clean_text = true;  // removes controls and makes every white space ' '
  bool chinese = true;     // spaces around each ideograph
  bool strip_accents = true;
  bool lowercase = true;
};

NormalizerPointer normalizer_sequence(std::vector<NormalizerPointer> steps);
NormalizerPointer form_normalizer(NormalForm form);
NormalizerPointer lowercase_normalizer();
NormalizerPointer strip_accents_normalizer();
NormalizerPointer bert_normalizer(BertNormalizerOptions options);
NormalizerPointer replace_normalizer(std::unique_ptr<Pattern> pattern, std::string content);
NormalizerPointer prepend_normalizer(std::string prefix);  // for a text that is not empty
NormalizerPointer strip_normalizer(bool left, bool right);
NormalizerPointer nmt_normalizer();
// Applies a charsmap as the tokenizers package does: to small clusters, then to characters.
NormalizerPointer precompiled_normalizer(Charsmap charsmap);

}  // namespace fullshard::text
