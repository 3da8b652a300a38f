// SPDX-License-Identifier: Apache-2.0
// In which precision the layers of a unit multiply.
#pragma once

#include <cstdint>

namespace fullshard {

// `operands`: in the dtype of what is multiplied. `fp8`: matrices of 16-bit numbers are rounded to
// 8 bits first, with a factor each, where the sizes allow it: values and weights to e4m3, gradients
// to e5m2, which reaches further and has a bit less; `fp8_e4m3`: gradients to e4m3 too.
// docs/training.md, "fp8".
enum class ProductPrecision : uint8_t { operands, fp8, fp8_e4m3 };

namespace nn {

// Of the unit whose forward runs on this thread. A backward computes as its forward did: operators
// remember what they found.
ProductPrecision product_precision();

class ProductPrecisionScope {
 public:
  explicit ProductPrecisionScope(ProductPrecision precision);
  ~ProductPrecisionScope();
  ProductPrecisionScope(const ProductPrecisionScope&) = delete;
  ProductPrecisionScope& operator=(const ProductPrecisionScope&) = delete;

 private:
  ProductPrecision before_;
};

}  // namespace nn
}  // namespace fullshard
