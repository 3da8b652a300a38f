// SPDX-License-Identifier: Apache-2.0
// A step that turns tokens into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/text/pipeline/growth_limit.h"
#include "fullshard/text/pipeline/pattern.h"

namespace fullshard::text {

// Immutable, so thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes the tokens; after the last step, they are joined. The steps make no more bytes than the
  // limit for the bytes of the tokens allows: an Error of kind input.
  void apply(std::vector<std::string>& tokens) const;
  void apply(std::vector<std::string>& tokens, const GrowthLimit& limit) const;

 private:
  virtual void rewrite(std::vector<std::string>& tokens, const GrowthLimit& limit) const = 0;
};

using DecoderPointer = std::unique_ptr<const Decoder>;

DecoderPointer decoder_sequence(std::vector<DecoderPointer> steps);
DecoderPointer byte_level_decoder();
DecoderPointer word_piece_decoder(std::string prefix, bool cleanup);
// `keep_first`: marks of the first token also become spaces.
DecoderPointer metaspace_decoder(std::string replacement, bool keep_first);
DecoderPointer byte_fallback_decoder();
DecoderPointer fuse_decoder();
DecoderPointer replace_decoder(std::unique_ptr<Pattern> pattern, std::string content);
// Removes up to `start` and `stop` times `content`, one character, at the ends of each token.
DecoderPointer strip_decoder(std::string content, size_t start, size_t stop);

}  // namespace fullshard::text
