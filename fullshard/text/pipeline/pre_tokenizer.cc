// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/pre_tokenizer.h"

#include "fullshard/text/models/byte_level.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPointer> steps) : steps_(std::move(steps)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& step : steps_) step->apply(pieces);
  }

 private:
  std::vector<PreTokenizerPointer> steps_;
};

class ByteLevel : public PreTokenizer {
 public:
  explicit ByteLevel(ByteLevelOptions options)
      : options_(options), words_(known_pattern(kGpt2Expression)) {}

  void apply(Pieces& pieces) const override {
    if (options_.add_prefix_space) {
      pieces.rewrite([](const TextPiece&, std::string_view word, std::string& text) {
        if (!word.starts_with(' ')) text += ' ';
        text += word;
      });
    }
    if (options_.use_regex) {
      pieces.split(SplitBehavior::isolated, [&](std::string_view word, std::vector<Match>& found) {
        words_->find(word, found);
      });
    }
    if (options_.write_alphabet) {
      pieces.rewrite([](const TextPiece&, std::string_view word, std::string& text) {
        text += to_byte_level(word);
      });
    }
  }

 private:
  ByteLevelOptions options_;
  std::unique_ptr<Pattern> words_;
};

class Split : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    pieces.split(behavior_, [&](std::string_view word, std::vector<Match>& found) {
      pattern_->find(word, found);
      if (!invert_) return;
      for (Match& match : found) match.is_match = !match.is_match;
    });
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options)
      : options_(std::move(options)), mark_(literal_pattern(options_.replacement)) {}

  void apply(Pieces& pieces) const override {
    pieces.rewrite([&](const TextPiece& piece, std::string_view word, std::string& text) {
      const bool wanted = options_.prepend == PrependScheme::always ||
                          (options_.prepend == PrependScheme::first && piece.is_first);
      if (wanted && !word.starts_with(' ') && !word.starts_with(options_.replacement)) {
        text += options_.replacement;
      }
      append_marked(word, text);
    });
    if (!options_.split) return;
    pieces.split(
        SplitBehavior::merged_with_next,
        [&](std::string_view word, std::vector<Match>& found) { mark_->find(word, found); });
  }

 private:
  void append_marked(std::string_view word, std::string& text) const {
    for (size_t begin = 0; begin < word.size();) {
      const size_t space = std::min(word.find(' ', begin), word.size());
      text.append(word, begin, space - begin);
      if (space < word.size()) text += options_.replacement;
      begin = space + 1;
    }
  }

  MetaspaceOptions options_;
  std::unique_ptr<Pattern> mark_;
};

class SpaceMarks : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    pieces.split(SplitBehavior::isolated, [](std::string_view word, std::vector<Match>& found) {
      constexpr std::string_view kMark = "\u2581";
      uint32_t begin = 0;
      for (size_t at = word.find(kMark, 1); at != std::string_view::npos;
           at = word.find(kMark, at + 3)) {
        if (word.substr(0, at).ends_with(kMark)) continue;
        found.push_back({begin, static_cast<uint32_t>(at), true});
        begin = static_cast<uint32_t>(at);
      }
      found.push_back({begin, static_cast<uint32_t>(word.size()), true});
    });
  }
};

}  // namespace

PreTokenizerPointer pre_tokenizer_sequence(std::vector<PreTokenizerPointer> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}
PreTokenizerPointer byte_level_pre_tokenizer(ByteLevelOptions options) {
  return std::make_unique<ByteLevel>(options);
}
PreTokenizerPointer split_pre_tokenizer(std::unique_ptr<Pattern> pattern, SplitBehavior behavior,
                                        bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}
PreTokenizerPointer metaspace_pre_tokenizer(MetaspaceOptions options) {
  return std::make_unique<Metaspace>(std::move(options));
}
PreTokenizerPointer space_mark_pre_tokenizer() { return std::make_unique<SpaceMarks>(); }

}  // namespace fullshard::text
