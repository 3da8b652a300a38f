// SPDX-License-Identifier: Apache-2.0
// The text of a sequence while its tokens come: characters may be cut into several tokens, and the
// texts that end a sequence lie across their borders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/text/pipeline/tokenizer.h"

namespace fullshard::generation {

// The stop texts that are special tokens, which no text shows; nothing without a tokenizer.
std::vector<int64_t> stop_tokens_of(const Tokenizer* tokenizer,
                                    const std::vector<std::string>& stop);

// Borrows the tokenizer and the stop texts. Text that may still change, because a character is not
// complete, its run of byte tokens goes on or a stop text may have begun, is held back.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop);

  // Takes a token; gives the text that is certain by now and was not given before.
  std::string push(int64_t token);
  // The rest, when no more tokens come.
  std::string finish();

  bool has_stopped() const { return has_stopped_; }  // a stop text, or a token that is one, came
  // Of all tokens so far, up to the stop text.
  const std::string& text() const { return text_; }

 private:
  bool is_in_byte_run(int64_t token);
  size_t find_stop(const std::string& piece) const;
  void take_piece(const std::string& piece);
  std::string give(size_t end);
  size_t certain_size() const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string>& stop_;
  std::vector<int64_t> stop_tokens_;
  std::vector<int32_t> tokens_;
  size_t window_ = 0;   // tokens from here on are decoded together
  size_t decoded_ = 0;  // those before it are in text_
  std::string text_;
  size_t given_ = 0;  // bytes of text_
  bool runs_fail_whole_;
  bool in_byte_run_ = false;
  bool has_stopped_ = false;
};

}  // namespace fullshard::generation
