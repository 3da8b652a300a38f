// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/unpadded.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor take_rows(const at::Tensor& from, const at::Tensor& places) {
  return from.index_select(0, places);
}

at::Tensor put_rows(const at::Tensor& rows, const at::Tensor& places, int64_t num_places) {
  auto sizes = rows.sizes().vec();
  sizes[0] = num_places;
  return at::zeros(sizes, rows.options()).index_copy_(0, places, rows);
}

// No place comes twice, so that each is the other's gradient: libtorch's own would keep the rows
// that were put, and add, in no certain order, where there is nothing to add to.
struct TakenRows : torch::autograd::Function<TakenRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& from,
                            const at::Tensor& places) {
    context->save_for_backward({places});
    context->saved_data["num_places"] = from.size(0);
    return take_rows(from, places);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const int64_t num_places = context->saved_data["num_places"].toInt();
    return {put_rows(gradients[0], context->get_saved_variables()[0], num_places), at::Tensor()};
  }
};

struct PutRows : torch::autograd::Function<PutRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& places, int64_t num_places) {
    context->save_for_backward({places});
    return put_rows(rows, places, num_places);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {take_rows(gradients[0], context->get_saved_variables()[0]), at::Tensor(), at::Tensor()};
  }
};

// The first `num_filler` places of padding come behind the real ones. Out of pinned memory the copy
// to a device is not waited for.
at::Tensor make_places(const std::vector<int64_t>& lengths, int64_t num_columns, int64_t num_real,
                       int64_t num_filler, at::Device device) {
  const auto places = at::empty({num_real + num_filler},
                                at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  auto* place = places.mutable_data_ptr<int64_t>();
  auto* filler = place + num_real;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    std::iota(place, place + length, begin);
    place += length;
    const int64_t taken = std::min(num_filler, num_columns - length);
    std::iota(filler, filler + taken, begin + length);
    filler += taken;
    num_filler -= taken;
    begin += num_columns;
  }
  return places.to(device, /*non_blocking=*/true);
}

// A document behind the others where there is filler. None is longer than the bound, which is the
// same for all batches of one shape.
ops::SharedPackedDocuments make_documents(std::vector<int64_t> lengths, int64_t num_filler,
                                          int64_t longest, at::Device device) {
  if (num_filler == 0) return ops::make_packed_documents({std::move(lengths)}, device);
  lengths.push_back(num_filler);
  ops::PackedDocuments documents = *ops::make_packed_documents({std::move(lengths)}, device);
  documents.longest = longest;
  return std::make_shared<ops::PackedDocuments>(std::move(documents));
}

int64_t num_filled(const std::vector<int64_t>& lengths, int64_t num_columns, int64_t together) {
  const int64_t num_real = std::reduce(lengths.begin(), lengths.end());
  if (together == 1) return num_real;
  return std::min((num_real / together + 1) * together, std::ssize(lengths) * num_columns);
}

}  // namespace

bool is_worth_unpadding(const std::vector<int64_t>& lengths, int64_t num_columns,
                        int64_t together) {
  return 8 * num_filled(lengths, num_columns, together) <= 7 * std::ssize(lengths) * num_columns;
}

SharedUnpadded make_unpadded(const std::vector<int64_t>& lengths, int64_t num_columns,
                             at::Device device, int64_t together) {
  if (lengths.empty()) return nullptr;
  const auto [least, most] = std::ranges::minmax(lengths);
  if (least < 1 || most > num_columns) {
    fail_as(ErrorKind::input, "lengths of rows from {} to {}; expected 1 to {}", least, most,
            num_columns);
  }
  check(together >= 1, "padding: tokens are to be filled up to multiples of {}; expected 1 or more",
        together);
  if (!is_worth_unpadding(lengths, num_columns, together)) return nullptr;
  auto layout = std::make_shared<Unpadded>();
  layout->num_rows = std::ssize(lengths);
  layout->num_columns = num_columns;
  const int64_t num_real = std::reduce(lengths.begin(), lengths.end());
  const int64_t num_filler = num_filled(lengths, num_columns, together) - num_real;
  layout->places = make_places(lengths, num_columns, num_real, num_filler, device);
  layout->documents = make_documents(lengths, num_filler, std::max(num_columns, together), device);
  return layout;
}

void check_fits(const char* name, const SharedUnpadded& layout, const at::Tensor& tokens) {
  if (layout == nullptr) return;
  if (tokens.size(0) != layout->num_rows || tokens.size(1) != layout->num_columns) {
    fail_as(ErrorKind::input, "{}: of {} rows of {} tokens, but there are {} of {}", name,
            layout->num_rows, layout->num_columns, tokens.size(0), tokens.size(1));
  }
}

SharedUnpadded clone_of(const SharedUnpadded& layout) {
  if (layout == nullptr) return nullptr;
  auto documents = std::make_shared<ops::PackedDocuments>(*layout->documents);
  documents->positions = documents->positions.clone();
  documents->starts = documents->starts.clone();
  auto own = std::make_shared<Unpadded>(*layout);
  own->places = own->places.clone();
  own->documents = std::move(documents);
  return own;
}

std::vector<at::Tensor> tensors_in(const SharedUnpadded& layout) {
  if (layout == nullptr) return {};
  return {layout->places, layout->documents->positions, layout->documents->starts};
}

at::Tensor without_padding(const at::Tensor& padded, const SharedUnpadded& layout) {
  if (layout == nullptr || !padded.defined()) return padded;
  return TakenRows::apply(padded.flatten(0, 1), layout->places).unsqueeze(0);
}

at::Tensor with_padding(const at::Tensor& tokens, const SharedUnpadded& layout) {
  if (layout == nullptr || !tokens.defined()) return tokens;
  const int64_t rows = layout->num_rows, columns = layout->num_columns;
  return PutRows::apply(tokens.flatten(0, 1), layout->places, rows * columns)
      .unflatten(0, {rows, columns});
}

ops::Projected with_padding(ops::Projected tokens, const SharedUnpadded& layout) {
  tokens.packed = with_padding(tokens.packed, layout);
  for (auto& part : tokens.parts) part = with_padding(part, layout);
  return tokens;
}

}  // namespace fullshard::models
