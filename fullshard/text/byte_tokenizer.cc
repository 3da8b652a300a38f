// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/byte_tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "fullshard/text/files/read_tokenizer_config.h"
#include "fullshard/text/models/vocabulary.h"
#include "fullshard/text/pipeline/special_tokens.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

constexpr int32_t kBos = 256, kEos = 257, kPad = 258, kSize = 259;
constexpr std::array<std::string_view, 3> kSpecial = {"<s>", "</s>", "<pad>"};
constexpr std::string_view kClass = "FullshardByteTokenizer";

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size() + 2);
    if (special) ids.push_back(kBos);
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    if (special) ids.push_back(kEos);
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (id >= 0 && id < kBos) bytes += static_cast<char>(id);
      if (id >= kBos && id < kSize && !skip_special)
        bytes += kSpecial[static_cast<size_t>(id - kBos)];
    }
    return replace_invalid_utf8(bytes);
  }

  int64_t vocabulary() const override { return kSize; }
  std::optional<int32_t> id_of(std::string_view token) const override {
    for (size_t i = 0; i < kSpecial.size(); ++i) {
      if (token == kSpecial[i]) return kBos + static_cast<int32_t>(i);
    }
    if (token.size() == 1) return static_cast<unsigned char>(token[0]);
    const auto byte = byte_of_token(token);
    return byte ? std::optional<int32_t>(*byte) : std::nullopt;
  }
  // A byte that is not a character by itself is written as <0x..>.
  std::optional<std::string> token_of(int32_t id) const override {
    if (id < 0 || id >= kSize) return std::nullopt;
    if (id >= kBos) return std::string(kSpecial[static_cast<size_t>(id - kBos)]);
    return id < 128 ? std::string(1, static_cast<char>(id)) : byte_token(static_cast<uint8_t>(id));
  }

  std::optional<int32_t> bos() const override { return kBos; }
  std::optional<int32_t> eos() const override { return kEos; }
  std::optional<int32_t> pad() const override { return kPad; }
  std::optional<int32_t> mask() const override { return std::nullopt; }
  std::optional<int32_t> cls() const override { return std::nullopt; }
  std::optional<int32_t> sep() const override { return std::nullopt; }
  bool is_special(int32_t id) const override { return id >= kBos && id < kSize; }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::string byte_tokenizer_config() {
  return fmt::format(
      "{{\n  \"tokenizer_class\": \"{}\",\n  \"bos_token\": \"{}\",\n"
      "  \"eos_token\": \"{}\",\n  \"pad_token\": \"{}\"\n}}\n",
      kClass, kSpecial[0], kSpecial[1], kSpecial[2]);
}

bool names_byte_tokenizer(const std::string& folder) {
  return read_tokenizer_config(folder.ends_with('/') ? folder : folder + "/").tokenizer_class ==
         kClass;
}

}  // namespace fullshard::text
