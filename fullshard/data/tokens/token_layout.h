// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a token file lie. All numbers are little-endian, tokens uint16 or uint32.
//
//   nanogpt     tokens, nothing else (.bin)
//
//   llmc        int32[256]: magic, version, number of tokens, zeros; then tokens (.bin)
//               uint16: magic 20240520, version 1; uint32: magic 20240801, version 7
//
//   fullshard   byte  0  "FSTOKENS"
//   (.tokens)         8  uint32 version, 1
//                    12  uint32 bytes per token, 2 or 4
//                    16  uint64 number of tokens n
//                    24  uint64 number of documents d
//                    32  int64  largest token, -1 without any
//                    40  uint64 where the tokens begin, 64
//                    48  uint64 where the documents begin: 64 + n tokens, rounded up to 8
//                    56  first eight bytes of the SHA-256 of bytes 0 to 55
//                    64  tokens
//                     …  uint64[d]: the first token of each document, ascending
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::data {

enum class TokenFormat { nanogpt, llmc, fullshard };

std::string_view name_of(TokenFormat format);
TokenFormat token_format_named(std::string_view name);  // an Error of the kind `usage` otherwise

inline constexpr int64_t kUnknown = -1;

struct TokenLayout {
  TokenFormat format = TokenFormat::nanogpt;
  int width = 2;      // bytes per token
  int64_t begin = 0;  // byte of the first token
  int64_t num_tokens = 0;
  int64_t num_documents = kUnknown;
  int64_t documents_begin = 0;  // byte
  int64_t max_token = kUnknown;

  std::string_view dtype() const { return width == 2 ? "uint16" : "uint32"; }
};

// Whether the bytes begin like a file with a header, whatever its name.
bool has_token_header(std::string_view bytes);
// Reads and checks the header, and the size of the file. `dtype` ("uint16", "uint32", or empty:
// told by the name, `.u32.bin`, or by a companion `<name>.json` with {"dtype": …}) matters where
// there is no header.
TokenLayout read_layout(const std::string& name, std::string_view bytes, std::string_view dtype);
// The bytes that a file of this layout begins with; empty if it has no header.
std::string header_of(const TokenLayout& layout);
int64_t header_size(TokenFormat format);

}  // namespace fullshard::data
