// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/normalizer.h"

#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPointer> steps) : steps_(std::move(steps)) {}
  void rewrite(std::string& text, const GrowthLimit& limit) const override {
    for (const auto& step : steps_) step->apply(text, limit);
  }

 private:
  std::vector<NormalizerPointer> steps_;
};

class Form : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void rewrite(std::string& text, const GrowthLimit&) const override {
    text = to_normal_form(text, form_);
  }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void rewrite(std::string& text, const GrowthLimit&) const override { text = lowercase(text); }
};

// Drops the characters for which change(character) is kNothing, and replaces the others by its
// result.
constexpr uint32_t kNothing = ~uint32_t{0};

template <class Change>
void change_characters(std::string& text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const uint32_t changed = change(next_character(text, i));
    if (changed != kNothing) append_utf8(result, changed);
  }
  text = std::move(result);
}

class StripAccents : public Normalizer {
 public:
  void rewrite(std::string& text, const GrowthLimit&) const override {
    change_characters(text,
                      [](uint32_t c) { return Characters::get().has(c, kMark) ? kNothing : c; });
  }
};

class Replace : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void rewrite(std::string& text, const GrowthLimit& limit) const override {
    std::vector<Match> found;
    pattern_->find(text, found);
    std::string result;
    result.reserve(text.size() * 2);
    for (const Match& match : found) {
      if (match.is_match) {
        result += content_;
        limit.check_bytes(result.size());
      } else {
        result.append(text, match.begin, match.end - match.begin);
      }
    }
    text = std::move(result);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void rewrite(std::string& text, const GrowthLimit&) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void rewrite(std::string& text, const GrowthLimit&) const override {
    const Characters& characters = Characters::get();
    size_t begin = 0, end = text.size();
    for (size_t i = begin; left_ && i < end; begin = i) {
      if (!characters.has(next_character(text, i), kSpace)) break;
    }
    while (right_ && end > begin) {
      size_t last = previous_begin(text, end);
      const size_t last_begin = last;
      if (!characters.has(next_character(text, last), kSpace)) break;
      end = last_begin;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

// The change that sentencepiece's "nmt" rules make to controls and white space.
uint32_t nmt_change(uint32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return kNothing;
  }
  const bool is_space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xFEFF || c == 0xFFFD;
  return is_space ? ' ' : c;
}

class Nmt : public Normalizer {
 public:
  void rewrite(std::string& text, const GrowthLimit&) const override {
    change_characters(text, nmt_change);
  }
};

}  // namespace

NormalizerPointer normalizer_sequence(std::vector<NormalizerPointer> steps) {
  return std::make_unique<NormalizerSequence>(std::move(steps));
}
NormalizerPointer form_normalizer(NormalForm form) { return std::make_unique<Form>(form); }
NormalizerPointer lowercase_normalizer() { return std::make_unique<Lowercase>(); }
NormalizerPointer strip_accents_normalizer() { return std::make_unique<StripAccents>(); }
NormalizerPointer replace_normalizer(std::unique_ptr<Pattern> pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
NormalizerPointer prepend_normalizer(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
NormalizerPointer strip_normalizer(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
NormalizerPointer nmt_normalizer() { return std::make_unique<Nmt>(); }

}  // namespace fullshard::text
