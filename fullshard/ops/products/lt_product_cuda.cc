// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/lt_product.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/empty.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

namespace fullshard::ops {
namespace {

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroy {
  void operator()(std::remove_pointer_t<Handle>* handle) const { kDestroy(handle); }
};
using MatmulDescription = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>,
                                          Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using MatrixLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>,
                                     Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                    Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

MatrixLayout layout_of(const LtMatrix& matrix) {
  cublasLtMatrixLayout_t layout = nullptr;
  TORCH_CUDABLAS_CHECK(
      cublasLtMatrixLayoutCreate(&layout, matrix.type, static_cast<uint64_t>(matrix.rows),
                                 static_cast<uint64_t>(matrix.columns), matrix.leading));
  return MatrixLayout(layout);
}

template <class Value>
void describe(const MatmulDescription& description, cublasLtMatmulDescAttributes_t attribute,
              const Value& value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)));
}

MatmulDescription description_of(const LtProduct& product) {
  cublasLtMatmulDesc_t made = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatmulDescCreate(&made, product.compute, CUDA_R_32F));
  MatmulDescription description(made);
  describe(description, CUBLASLT_MATMUL_DESC_TRANSA, product.first.operation);
  describe(description, CUBLASLT_MATMUL_DESC_TRANSB, product.second.operation);
  if (product.bias != nullptr) {
    describe(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, product.bias_type);
  }
  if (product.first.factor != nullptr) {
    describe(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.first.factor);
    describe(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.second.factor);
    describe(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{product.is_fast_sum});
  }
  return description;
}

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

template <class Value>
void prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const Value& value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

const LtMatrix& base_of(const LtProduct& product) {
  return product.base.data != nullptr ? product.base : product.output;
}

Preference preference_of(const LtProduct& product) {
  cublasLtMatmulPreference_t made = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* data) {
    prefer(preference, attribute, alignment_of(data));
  };
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.first.data);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.second.data);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, base_of(product).data);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.output.data);
  return preference;
}

// All that the choice of a kernel depends on.
using Shape = std::array<int64_t, 27>;

Shape shape_of(const LtProduct& product, const at::Tensor& like) {
  Shape shape{};
  size_t next = 0;
  for (const auto* matrix : {&product.first, &product.second, &base_of(product), &product.output}) {
    shape.at(next++) = matrix->type;
    shape.at(next++) = matrix->operation;
    shape.at(next++) = matrix->rows;
    shape.at(next++) = matrix->columns;
    shape.at(next++) = matrix->leading;
    shape.at(next++) = alignment_of(matrix->data);
  }
  shape.at(next++) = product.compute;
  shape.at(next++) = product.bias == nullptr ? 0 : 1 + static_cast<int64_t>(product.bias_type);
  shape.at(next++) = like.get_device() * 4 + (product.first.factor != nullptr ? 2 : 0) +
                     (product.is_fast_sum ? 1 : 0);
  return shape;
}

struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
};

struct Layouts {
  MatmulDescription description;
  MatrixLayout first, second, base, output;
};

Layouts layouts_of(const LtProduct& product) {
  return {description_of(product), layout_of(product.first), layout_of(product.second),
          layout_of(base_of(product)), layout_of(product.output)};
}

constexpr int64_t kPackElements = 8;  // of 16 bits

int64_t to_whole_packs(int64_t dense) {
  return (dense + kPackElements - 1) / kPackElements * kPackElements;
}

// With dense dimensions of the operands rounded up to whole packs, where their columns have room.
LtProduct with_whole_packs(LtProduct product) {
  auto& [first, second, base, output, bias, bias_type, compute, is_fast_sum] = product;
  const bool is_16_bit = first.type == CUDA_R_16BF && second.type == CUDA_R_16BF;
  const bool begin_at_packs =
      first.leading % kPackElements == 0 && second.leading % kPackElements == 0;
  if (!is_16_bit || !begin_at_packs) return product;
  const bool is_first_turned = first.operation == CUBLAS_OP_T;
  const bool is_second_turned = second.operation == CUBLAS_OP_T;
  if (is_first_turned || !is_second_turned) {
    auto& from_first = is_first_turned ? first.rows : first.columns;
    auto& from_second = is_second_turned ? second.columns : second.rows;
    from_first = from_second = to_whole_packs(from_first);
  }
  if (is_second_turned) second.rows = output.columns = base.columns = to_whole_packs(second.rows);
  return product;
}

// What cublasLt says of a kernel that it named for the product in whole packs.
std::optional<Choice> checked(const Choice& choice, const Layouts& layouts) {
  cublasLtMatmulHeuristicResult_t found = {};
  const auto status = cublasLtMatmulAlgoCheck(
      at::cuda::getCurrentCUDABlasLtHandle(), layouts.description.get(), layouts.first.get(),
      layouts.second.get(), layouts.base.get(), layouts.output.get(), &choice.algorithm, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found.workspaceSize > kWorkspaceBytes) return std::nullopt;
  return Choice{choice.algorithm, found.workspaceSize};
}

std::optional<Choice> named_kernel(const LtProduct& product, const Layouts& layouts) {
  const auto preference = preference_of(product);
  cublasLtMatmulHeuristicResult_t found = {};
  int num_found = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      at::cuda::getCurrentCUDABlasLtHandle(), layouts.description.get(), layouts.first.get(),
      layouts.second.get(), layouts.base.get(), layouts.output.get(), preference.get(), 1, &found,
      &num_found);
  if (status != CUBLAS_STATUS_SUCCESS || num_found == 0) return std::nullopt;
  return Choice{found.algo, found.workspaceSize};
}

std::optional<Choice> ask_for_kernel(const LtProduct& product, const Layouts& layouts) {
  if (is_ragged(product)) {
    const auto whole = with_whole_packs(product);
    const auto named = named_kernel(whole, layouts_of(whole));
    if (const auto choice = named ? checked(*named, layouts) : std::nullopt) return choice;
  }
  return named_kernel(product, layouts);
}

// Asking takes longer than the launch. Shapes of a training run are few; where they are not
// (sequences of every length), old ones are forgotten all at once.
class KnownKernels {
 public:
  std::optional<Choice> of(const LtProduct& product, const Layouts& layouts,
                           const at::Tensor& like) {
    const Shape shape = shape_of(product, like);
    const std::lock_guard lock(mutex_);
    if (const auto known = choices_.find(shape); known != choices_.end()) return known->second;
    constexpr size_t kMostShapes = 4096;
    if (choices_.size() >= kMostShapes) choices_.clear();
    return choices_[shape] = ask_for_kernel(product, layouts);
  }

 private:
  std::mutex mutex_;
  std::map<Shape, std::optional<Choice>> choices_;
};

}  // namespace

bool is_ragged(const LtProduct& product) {
  const auto whole = with_whole_packs(product);
  return whole.first.columns != product.first.columns || whole.first.rows != product.first.rows ||
         whole.second.rows != product.second.rows;
}

bool run_lt_product(const tensor::KernelLaunch& launch, const LtProduct& product,
                    const at::Tensor& like) {
  static KnownKernels known;
  const auto& base = base_of(product);
  const auto layouts = layouts_of(product);
  const auto choice = known.of(product, layouts, like);
  if (!choice) return false;
  // From the allocator of the stream, which gives it to the next one in line.
  const auto workspace =
      at::empty({static_cast<int64_t>(choice->workspace_bytes)}, like.options().dtype(at::kByte));
  const float one = 1, weight = product.base.data != nullptr ? 1 : 0;
  TORCH_CUDABLAS_CHECK(cublasLtMatmul(
      at::cuda::getCurrentCUDABlasLtHandle(), layouts.description.get(), &one, product.first.data,
      layouts.first.get(), product.second.data, layouts.second.get(), &weight, base.data,
      layouts.base.get(), const_cast<void*>(product.output.data), layouts.output.get(),
      &choice->algorithm, workspace.mutable_data_ptr(), choice->workspace_bytes, launch.stream()));
  return true;
}

}  // namespace fullshard::ops
