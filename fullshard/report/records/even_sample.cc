// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/even_sample.h"

namespace fullshard::report {

void EvenSample::add(double value) {
  if (count_++ % stride_ != 0) return;
  values_.push_back(value);
  if (values_.size() < limit_) return;
  size_t kept = 0;
  for (size_t i = 0; i < values_.size(); i += 2) values_[kept++] = values_[i];
  values_.resize(kept);
  stride_ *= 2;
}

}  // namespace fullshard::report
