// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/transposed_read.h"

#include <algorithm>

#include "fullshard/base/bytes.h"

namespace fullshard::stored {
namespace {

struct Rectangle {
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t column = 0;
  int64_t num_columns = 0;
};

// `source` has `count` rows of `length` elements; row i becomes column i of `target`, whose rows
// have `width` elements. It copies squares, so that both stay in the cache.
template <class Word>
void turn_words(const Word* source, int64_t count, int64_t length, Word* target, int64_t width) {
  constexpr int64_t kSide = 32;
  for (int64_t i = 0; i < count; i += kSide) {
    for (int64_t j = 0; j < length; j += kSide) {
      for (int64_t b = j; b < std::min(j + kSide, length); ++b) {
        for (int64_t a = i; a < std::min(i + kSide, count); ++a) {
          target[b * width + a] = source[a * length + b];
        }
      }
    }
  }
}

void turn(const char* source, int64_t count, int64_t length, char* target, int64_t width,
          int64_t size) {
  const auto as = [&]<class Word>(Word) {
    turn_words(reinterpret_cast<const Word*>(source), count, length,
               reinterpret_cast<Word*>(target), width);
  };
  if (size == 8) return as(uint64_t{});
  if (size == 4) return as(uint32_t{});
  if (size == 2) return as(uint16_t{});
  as(uint8_t{});
}

class TransposedReader {
 public:
  TransposedReader(const TensorSource& source, const std::string& name, int64_t rows)
      : source_(source), name_(name), rows_(rows) {}

  // `out` holds the rectangle row by row.
  void read(const Rectangle& wanted, const ElementSpan& out) const {
    if (wanted.num_rows == 0 || wanted.num_columns == 0) return;
    const int64_t size = element_bytes(out.dtype);
    const int64_t most = std::max<int64_t>(4 * kMiB / size / wanted.num_rows, 1);
    const ElementBuffer block(std::min(most, wanted.num_columns) * wanted.num_rows, out.dtype);
    for (int64_t first = 0; first < wanted.num_columns; first += most) {
      const int64_t count = std::min(most, wanted.num_columns - first);
      read_block(wanted, wanted.column + first, count, block.all());
      turn(static_cast<const char*>(block.all().data), count, wanted.num_rows,
           static_cast<char*>(out.data) + first * size, wanted.num_columns, size);
    }
  }

 private:
  // `count` rows of the file from `column` on, cut to the wanted part of each.
  void read_block(const Rectangle& wanted, int64_t column, int64_t count,
                  const ElementSpan& block) const {
    if (wanted.num_rows == rows_) {
      source_.read(name_, column * rows_, block.part(0, count * rows_));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      source_.read(name_, (column + i) * rows_ + wanted.row,
                   block.part(i * wanted.num_rows, wanted.num_rows));
    }
  }

  const TensorSource& source_;
  const std::string& name_;
  int64_t rows_;  // of the matrix
};

}  // namespace

// A range of a matrix is the end of a row, whole rows and the beginning of a row.
void read_transposed(const TensorSource& source, const std::string& name, int64_t rows,
                     int64_t columns, int64_t begin, const ElementSpan& out) {
  const TransposedReader reader(source, name, rows);
  const int64_t end = begin + out.numel;
  int64_t at = begin;
  while (at < end) {
    const int64_t row = at / columns;
    const int64_t column = at % columns;
    const bool takes_whole_rows = column == 0 && end - at >= columns;
    const Rectangle part = takes_whole_rows
                               ? Rectangle{row, (end - at) / columns, 0, columns}
                               : Rectangle{row, 1, column, std::min(columns - column, end - at)};
    const int64_t numel = part.num_rows * part.num_columns;
    reader.read(part, out.part(at - begin, numel));
    at += numel;
  }
}

}  // namespace fullshard::stored
