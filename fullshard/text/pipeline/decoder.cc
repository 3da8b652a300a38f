// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/decoder.h"

#include "fullshard/text/models/byte_level.h"
#include "fullshard/text/models/vocabulary.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

size_t bytes_of(const Tokens& tokens) {
  size_t bytes = 0;
  for (const auto& token : tokens) bytes += token.size();
  return bytes;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t begin = 0;;) {
    const size_t at = text.find(from, begin);
    result.append(text.substr(begin, at - begin));
    if (at == std::string_view::npos) return result;
    result.append(to);
    begin = at + from.size();
  }
}

class SequenceDecoder : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<DecoderPointer> steps) : steps_(std::move(steps)) {}
  void rewrite(Tokens& tokens, const GrowthLimit& limit) const override {
    for (const auto& step : steps_) step->apply(tokens, limit);
  }

 private:
  std::vector<DecoderPointer> steps_;
};

class ByteLevelDecoder : public Decoder {
 public:
  void rewrite(Tokens& tokens, const GrowthLimit&) const override {
    std::string bytes;
    for (const auto& token : tokens) bytes += from_byte_level(token).value_or(token);
    tokens = {replace_invalid_utf8(bytes)};
  }
};

class WordPieceDecoder : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void rewrite(Tokens& tokens, const GrowthLimit&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_)) {
        tokens[i].erase(0, prefix_.size());
      } else if (i > 0) {
        tokens[i].insert(0, " ");
      }
      if (cleanup_) clean_up(tokens[i]);
    }
  }

 private:
  static void clean_up(std::string& token) {
    constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) token = replaced(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

class MetaspaceDecoder : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool keep_first)
      : replacement_(std::move(replacement)), keep_first_(keep_first) {}
  void rewrite(Tokens& tokens, const GrowthLimit&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], replacement_, i == 0 && !keep_first_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool keep_first_;
};

class ByteFallback : public Decoder {
 public:
  void rewrite(Tokens& tokens, const GrowthLimit&) const override {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (!bytes.empty() && is_valid_utf8(bytes)) {
        result.push_back(bytes);
      } else {  // one replacement per byte
        for (size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\uFFFD");
      }
      bytes.clear();
    };
    for (const auto& token : tokens) {
      if (const auto byte = byte_of_token(token)) {
        bytes += static_cast<char>(*byte);
      } else {
        flush();
        result.push_back(token);
      }
    }
    flush();
    tokens = std::move(result);
  }
};

class Fuse : public Decoder {
 public:
  void rewrite(Tokens& tokens, const GrowthLimit&) const override { tokens = {joined(tokens)}; }
};

class ReplaceDecoder : public Decoder {
 public:
  ReplaceDecoder(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void rewrite(Tokens& tokens, const GrowthLimit& limit) const override {
    std::vector<Match> found;
    size_t made = 0;
    for (auto& token : tokens) {
      found.clear();
      pattern_->find(token, found);
      std::string result;
      for (const Match& match : found) {
        result += match.is_match ? content_ : token.substr(match.begin, match.end - match.begin);
        limit.check_bytes(made + result.size());
      }
      made += result.size();
      token = std::move(result);
    }
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class StripDecoder : public Decoder {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void rewrite(Tokens& tokens, const GrowthLimit&) const override {
    for (auto& token : tokens) {
      for (size_t i = 0; i < start_ && token.starts_with(content_); ++i) {
        token.erase(0, content_.size());
      }
      for (size_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
        token.resize(token.size() - content_.size());
      }
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

}  // namespace

void Decoder::apply(Tokens& tokens) const { apply(tokens, GrowthLimit(bytes_of(tokens))); }

void Decoder::apply(Tokens& tokens, const GrowthLimit& limit) const {
  rewrite(tokens, limit);
  limit.check_bytes(bytes_of(tokens));
}

DecoderPointer decoder_sequence(std::vector<DecoderPointer> steps) {
  return std::make_unique<SequenceDecoder>(std::move(steps));
}
DecoderPointer byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }
DecoderPointer word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}
DecoderPointer metaspace_decoder(std::string replacement, bool keep_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), keep_first);
}
DecoderPointer byte_fallback_decoder() { return std::make_unique<ByteFallback>(); }
DecoderPointer fuse_decoder() { return std::make_unique<Fuse>(); }
DecoderPointer replace_decoder(std::unique_ptr<Pattern> pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
DecoderPointer strip_decoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}

}  // namespace fullshard::text
