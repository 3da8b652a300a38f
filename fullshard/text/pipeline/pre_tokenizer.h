// SPDX-License-Identifier: Apache-2.0
// A step that splits text into words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/text/pipeline/pattern.h"
#include "fullshard/text/pipeline/pieces.h"

namespace fullshard::text {

// Immutable, so thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using PreTokenizerPointer = std::unique_ptr<const PreTokenizer>;

struct ByteLevelOptions {
  bool add_prefix_space = true;
  bool use_regex = true;       // split by GPT-2's expression
  bool write_alphabet = true;  // false: words stay bytes, for a model that takes bytes
};

enum class PrependScheme { always, first, never };

struct MetaspaceOptions {
  std::string replacement = "\u2581";
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
};

PreTokenizerPointer pre_tokenizer_sequence(std::vector<PreTokenizerPointer> steps);
PreTokenizerPointer byte_level_pre_tokenizer(ByteLevelOptions options);
PreTokenizerPointer split_pre_tokenizer(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                        bool invert);
PreTokenizerPointer metaspace_pre_tokenizer(MetaspaceOptions options);
PreTokenizerPointer bert_pre_tokenizer();
PreTokenizerPointer whitespace_pre_tokenizer();        // \w+|[^\w\s]+
PreTokenizerPointer whitespace_split_pre_tokenizer();  // splits at white space
PreTokenizerPointer digits_pre_tokenizer(bool individual);
PreTokenizerPointer punctuation_pre_tokenizer(SplitBehavior behavior);
// Cuts before each U+2581 that follows another character; see Model::may_cut_at_spaces.
PreTokenizerPointer space_mark_pre_tokenizer();

}  // namespace fullshard::text
