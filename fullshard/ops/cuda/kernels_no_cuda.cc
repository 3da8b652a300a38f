// SPDX-License-Identifier: Apache-2.0
// The launchers of a build without CUDA. Nothing calls them there: has_cuda_kernel() is false but
// in plans, which launch nothing.
#include "fullshard/base/error.h"
#include "fullshard/ops/cuda/activation_rows.h"
#include "fullshard/ops/cuda/column_sums.h"
#include "fullshard/ops/cuda/dropout_rows.h"
#include "fullshard/ops/cuda/entropy_rows.h"
#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/fp8_rows.h"
#include "fullshard/ops/cuda/norm_rows.h"
#include "fullshard/ops/cuda/rotate_rows.h"
#include "fullshard/ops/cuda/segment_sums.h"
#include "fullshard/ops/cuda/step_attention_rows.h"
#include "fullshard/ops/cuda/widen_rows.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::ops {
namespace {

using tensor::DeviceStream;

[[noreturn]] void refuse() { fail("operators on a GPU: {}", tensor::launch_problem()); }

}  // namespace

void activate_rows(void*, const ActivationRows&, float*, DeviceStream) { refuse(); }
void activate_gradient_rows(const ActivationGradientRows&, const ActivationRows&, DeviceStream) {
  refuse();
}
void column_sums(float*, bool, const void*, KernelDtype, int64_t, int64_t, int64_t, float*,
                 DeviceStream) {
  refuse();
}
void sum_partials(const PartialRows&, const PartialRows&, int64_t, int64_t, DeviceStream) {
  refuse();
}
void drop_rows(const DropoutRows&, DeviceStream) { refuse(); }
void entropy_rows(const EntropyRows&, DeviceStream) { refuse(); }
void norm_few_rows(void*, const FewRowsProducts&, DeviceStream) { refuse(); }
void multiply_few_rows(const FewRowsProducts&, DeviceStream) { refuse(); }
void multiply_few_wide_rows(const FewRowsProducts&, DeviceStream) { refuse(); }
void largest_values(float*, bool, const void*, int64_t, DeviceStream) { refuse(); }
void to_fp8_rows(const Fp8Targets&, const Fp8Rows&, DeviceStream) { refuse(); }
void normalise_rows(void*, const NormRows&, float, float*, DeviceStream) { refuse(); }
void normalise_rows_again(void*, const NormRows&, DeviceStream) { refuse(); }
void norm_gradient_rows(const NormGradientRows&, const NormRows&, DeviceStream) { refuse(); }
void rotate_rows(void*, KernelDtype, int64_t, int64_t, int64_t, const RotaryRows&, float,
                 DeviceStream) {
  refuse();
}
void pack_and_turn_back(void*, KernelDtype, int64_t, const HeadSources&, const RotaryRows&,
                        DeviceStream) {
  refuse();
}
void add_segments(const SegmentRows&, DeviceStream) { refuse(); }
void attend_step(const StepAttentionRows&, KernelDtype, DeviceStream) { refuse(); }
void widen_rows(const WidenedRows&, DeviceStream) { refuse(); }

}  // namespace fullshard::ops
