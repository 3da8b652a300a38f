// SPDX-License-Identifier: Apache-2.0
// The reader of sentencepiece's .model files: a protocol buffer, of which it reads what encoding
// and decoding need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::text {

struct SentencePieceFile {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Algorithm { unigram = 1, bpe = 2 };

  struct Piece {
    std::string text;
    float score = 0;
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  // by id
  Algorithm algorithm = Algorithm::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  int32_t unknown = 0, bos = 1, eos = 2, pad = -1;  // -1: none
  std::string unknown_surface = " \u2047 ";

  std::string charsmap;  // "": none
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

// Throws Error of the kind input when the bytes are cut short, are not such a file or need
// something that is not supported.
SentencePieceFile parse_sentencepiece(std::string_view bytes);

}  // namespace fullshard::text
