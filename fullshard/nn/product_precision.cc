// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/product_precision.h"

#include <utility>

namespace fullshard::nn {
namespace {

thread_local ProductPrecision precision_of_thread = ProductPrecision::operands;

}  // namespace

ProductPrecision product_precision() { return precision_of_thread; }

ProductPrecisionScope::ProductPrecisionScope(ProductPrecision precision)
    : before_(std::exchange(precision_of_thread, precision)) {}
ProductPrecisionScope::~ProductPrecisionScope() { precision_of_thread = before_; }

}  // namespace fullshard::nn
