// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/sentencepiece_file.h"

#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "fullshard/base/error.h"
#include "fullshard/text/models/vocabulary.h"
#include "fullshard/text/unicode/utf8.h"

namespace fullshard::text {
namespace {

// Reads the fields of a message, one after the other.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  // Returns false at the end; otherwise number() and the value of the field are set.
  bool next() {
    if (position_ == bytes_.size()) return false;
    const uint64_t key = read_varint();
    number_ = key >> 3;
    switch (key & 7) {
      case 0:
        varint_ = read_varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        span_ = take(read_varint());
        break;
      case 5:
        span_ = take(4);
        break;
      default:
        broken();
    }
    wire_ = key & 7;
    return true;
  }

  uint64_t number() const { return number_; }
  std::string_view bytes() const { return of_type(2), span_; }
  bool flag() const { return of_type(0), varint_ != 0; }
  int32_t integer() const { return of_type(0), static_cast<int32_t>(varint_); }
  float real() const {
    of_type(5);
    uint32_t bits = 0;
    for (size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(span_[i]);
    return std::bit_cast<float>(bits);
  }

 private:
  [[noreturn]] void broken() const {
    fail_as(ErrorKind::input, "{}: broken at byte {} of {}; is this a sentencepiece model?", name_,
            position_, bytes_.size());
  }
  void of_type(uint64_t wire) const {
    if (wire_ != wire) broken();
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - position_) broken();
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }
  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }

  std::string_view bytes_, name_, span_;
  size_t position_ = 0;
  uint64_t number_ = 0, varint_ = 0, wire_ = 0;
};

using Kind = SentencePieceFile::Kind;

SentencePieceFile::Piece read_piece(std::string_view bytes, size_t index) {
  SentencePieceFile::Piece piece;
  for (Fields fields(bytes, "piece"); fields.next();) {
    if (fields.number() == 1) piece.text = fields.bytes();
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) piece.kind = static_cast<Kind>(fields.integer());
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text)) {
    fail_as(ErrorKind::input, "piece {}: \"{}\" is not valid text", index,
            replace_invalid_utf8(piece.text));
  }
  if (piece.kind < Kind::normal || piece.kind > Kind::byte) {
    fail_as(ErrorKind::input, "piece {}: unknown type {}", index, static_cast<int>(piece.kind));
  }
  if (piece.kind == Kind::byte && !byte_of_token(piece.text)) {
    fail_as(ErrorKind::input, "piece {}: \"{}\" is not a byte", index, piece.text);
  }
  return piece;
}

void read_trainer(std::string_view bytes, SentencePieceFile& file) {
  for (Fields fields(bytes, "trainer_spec"); fields.next();) {
    switch (fields.number()) {
      case 3: {
        const int32_t type = fields.integer();
        if (type != 1 && type != 2) {
          fail_as(ErrorKind::input,
                  "trainer_spec.model_type: {} is not supported, expected 1 (unigram) or 2 (BPE)",
                  type);
        }
        file.algorithm = static_cast<SentencePieceFile::Algorithm>(type);
        break;
      }
      case 24:
        file.space_as_suffix = fields.flag();
        break;
      case 35:
        file.byte_fallback = fields.flag();
        break;
      case 41:
        file.bos = fields.integer();
        break;
      case 42:
        file.eos = fields.integer();
        break;
      case 43:
        file.pad = fields.integer();
        break;
      case 44:
        file.unknown_surface = fields.bytes();
        break;
      default:
        break;
    }
  }
}

void read_normalizer(std::string_view bytes, SentencePieceFile& file) {
  for (Fields fields(bytes, "normalizer_spec"); fields.next();) {
    if (fields.number() == 2) file.charsmap = fields.bytes();
    if (fields.number() == 3) file.add_dummy_prefix = fields.flag();
    if (fields.number() == 4) file.remove_extra_spaces = fields.flag();
    if (fields.number() == 5) file.escape_spaces = fields.flag();
  }
}

void refuse_denormalizer(std::string_view bytes) {
  for (Fields fields(bytes, "denormalizer_spec"); fields.next();) {
    if (fields.number() == 2 && !fields.bytes().empty()) {
      fail_as(ErrorKind::input, "denormalizer_spec.precompiled_charsmap is not supported");
    }
  }
}

void check_pieces(SentencePieceFile& file) {
  std::set<std::string_view> texts;
  size_t num_unknown = 0, num_bytes = 0;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto& piece = file.pieces[i];
    if (!texts.insert(piece.text).second) {
      fail_as(ErrorKind::input, "piece {}: \"{}\" occurs twice", i, piece.text);
    }
    if (piece.kind == Kind::unknown) {
      ++num_unknown;
      file.unknown = static_cast<int32_t>(i);
    }
    num_bytes += piece.kind == Kind::byte;
  }
  if (num_unknown != 1) {
    fail_as(ErrorKind::input,
            "pieces: {} unknown pieces, expected 1; is this a "
            "sentencepiece model?",
            num_unknown);
  }
  if (file.byte_fallback && num_bytes != 256) {
    fail_as(ErrorKind::input, "trainer_spec.byte_fallback: {} byte pieces, expected 256",
            num_bytes);
  }
  for (int32_t* id : {&file.bos, &file.eos, &file.pad}) {
    if (*id >= static_cast<int32_t>(file.pieces.size())) *id = -1;
  }
}

}  // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes) {
  SentencePieceFile file;
  for (Fields fields(bytes, "model"); fields.next();) {
    if (fields.number() == 1) file.pieces.push_back(read_piece(fields.bytes(), file.pieces.size()));
    if (fields.number() == 2) read_trainer(fields.bytes(), file);
    if (fields.number() == 3) read_normalizer(fields.bytes(), file);
    if (fields.number() == 5) refuse_denormalizer(fields.bytes());
  }
  check_pieces(file);
  return file;
}

}  // namespace fullshard::text
