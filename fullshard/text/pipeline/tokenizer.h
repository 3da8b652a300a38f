// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard {

// Thread-safe after construction. Text is UTF-8; invalid bytes are handled as in the originals
// (replaced by U+FFFD), never read beyond.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `special`: with what the family adds around a text ([CLS] … [SEP], <s>, </s>).
  virtual std::vector<int32_t> encode(std::string_view text, bool special) const = 0;
  virtual std::string decode(const std::vector<int32_t>& ids, bool skip_special = true) const = 0;

  virtual int64_t vocabulary() const = 0;  // ids are below it, including added tokens
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  virtual std::optional<std::string> token_of(int32_t id) const = 0;

  // Absent if the family has none. From tokenizer_config.json or special_tokens_map.json if the
  // folder has them.
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  virtual std::optional<int32_t> pad() const = 0;
  virtual std::optional<int32_t> mask() const = 0;
  virtual std::optional<int32_t> cls() const = 0;
  virtual std::optional<int32_t> sep() const = 0;
  // [CLS], <s>, … : never chosen for masking.
  virtual bool is_special(int32_t id) const = 0;
  // Texts that are too long lose their beginning: truncation_side of tokenizer_config.json.
  virtual bool cuts_left() const { return false; }
};

// A folder (tokenizer.json, else a sentencepiece .model, else vocab.json + merges.txt, else
// vocab.txt), one such file, or "bytes": 256 byte values, then <s> 256, </s> 257, <pad> 258. An
// option that is not supported is an error of the kind `input` that names file and option.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace fullshard
