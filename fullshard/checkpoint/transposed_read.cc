#include "fullshard/checkpoint/transposed_read.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "fullshard/base/bytes.h"

namespace fullshard {
namespace {

struct Rectangle {
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t column = 0;
  int64_t num_columns = 0;
};

class TransposedReader {
 public:
  TransposedReader(const TensorSource& source, const std::string& name, int64_t rows)
      : source_(source), name_(name), rows_(rows) {}

  // `out` is 1-D and holds the rectangle row by row.
  void read(const Rectangle& wanted, const at::Tensor& out) const {
    if (wanted.num_rows == 0 || wanted.num_columns == 0) return;
    const auto target = out.view({wanted.num_rows, wanted.num_columns});
    const auto element_bytes = static_cast<int64_t>(out.element_size());
    const int64_t most = std::max<int64_t>(4 * kMiB / element_bytes / wanted.num_rows, 1);
    for (int64_t first = 0; first < wanted.num_columns; first += most) {
      const int64_t count = std::min(most, wanted.num_columns - first);
      auto block = at::empty({count, wanted.num_rows}, out.options());
      read_block(wanted, wanted.column + first, block);
      target.narrow(1, first, count).copy_(block.t());
    }
  }

 private:
  // Rows of the file from `column` on, cut to the wanted part of each.
  void read_block(const Rectangle& wanted, int64_t column, const at::Tensor& block) const {
    if (wanted.num_rows == rows_) {
      source_.read(name_, column * rows_, block.view({-1}));
      return;
    }
    for (int64_t i = 0; i < block.size(0); ++i) {
      source_.read(name_, (column + i) * rows_ + wanted.row, block[i]);
    }
  }

  const TensorSource& source_;
  const std::string& name_;
  int64_t rows_;  // of the matrix
};

}  // namespace

// A range of a matrix is the end of a row, whole rows and the beginning of a row.
void read_transposed(const TensorSource& source, const std::string& name, int64_t rows,
                     int64_t columns, int64_t begin, const at::Tensor& out) {
  const TransposedReader reader(source, name, rows);
  const int64_t end = begin + out.numel();
  int64_t at = begin;
  while (at < end) {
    const int64_t row = at / columns;
    const int64_t column = at % columns;
    const bool takes_whole_rows = column == 0 && end - at >= columns;
    const Rectangle part = takes_whole_rows
                               ? Rectangle{row, (end - at) / columns, 0, columns}
                               : Rectangle{row, 1, column, std::min(columns - column, end - at)};
    const int64_t numel = part.num_rows * part.num_columns;
    reader.read(part, out.narrow(0, at - begin, numel));
    at += numel;
  }
}

}  // namespace fullshard
