// SPDX-License-Identifier: Apache-2.0
#include "tests/optim_cuda/step_arrays.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "fullshard/engine/storage/master_halves.h"

namespace fullshard::testing {
namespace {

optim::StoredAs stored_as(at::ScalarType dtype) {
  return dtype == at::kFloat      ? optim::StoredAs::fp32
         : dtype == at::kBFloat16 ? optim::StoredAs::bf16
         : dtype == at::kHalf     ? optim::StoredAs::fp16
                                  : optim::StoredAs::fp64;
}

at::Tensor shifted(const at::Tensor& values, at::Device device, int shift) {
  auto memory = at::empty({values.numel() + shift}, values.options().device(device));
  return memory.narrow(0, shift, values.numel()).copy_(values);
}

optim::DeviceArray array_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), stored_as(tensor.scalar_type())};
}

optim::Elements elements_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), tensor.scalar_type()};
}

at::ScalarType bits_dtype(const at::Tensor& tensor) {
  return tensor.element_size() == 2   ? at::kShort
         : tensor.element_size() == 4 ? at::kInt
                                      : at::kLong;
}

void expect_same(const at::Tensor& cuda, const at::Tensor& cpu, const std::string& what) {
  if (!cpu.defined()) return;
  const auto found = cuda.cpu();
  const auto differs = found.view(bits_dtype(found)).ne(cpu.contiguous().view(bits_dtype(cpu)));
  const auto count = differs.sum().item<int64_t>();
  if (count == 0) return;
  const auto at = differs.nonzero()[0].item<int64_t>();
  ADD_FAILURE() << what << ": " << count << " of " << cpu.numel() << " elements differ, first at "
                << at << ": GPU " << found[at].item<double>() << ", CPU " << cpu[at].item<double>()
                << ", largest difference "
                << (found.to(at::kDouble) - cpu.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

StepArrays StepArrays::random(int64_t numel, const StepDtypes& dtypes, uint64_t seed, int shift) {
  auto generator = at::detail::createCPUGenerator(seed);
  const auto values = [&](at::ScalarType dtype, double scale) {
    return shifted((at::randn({numel}, generator) * scale).to(dtype), at::kCPU, shift);
  };
  StepArrays arrays;
  arrays.master = values(dtypes.master, 0.5);
  arrays.gradient = values(dtypes.gradient, 0.01);
  for (int i = 0; i < dtypes.num_states; ++i) {
    arrays.states.push_back(values(dtypes.state, i == 0 ? 0.01 : 0.0001));
    if (i == 1 || dtypes.first_is_square) arrays.states.back().abs_();
  }
  if (dtypes.shown != at::ScalarType::Undefined) arrays.shown = values(dtypes.shown, 0);
  arrays.first = static_cast<int64_t>(seed % 7) * 11;
  return arrays;
}

StepArrays StepArrays::copied_to(at::Device device, int shift) const {
  const auto moved = [&](const at::Tensor& value) {
    return value.defined() ? shifted(value, device, shift) : value;
  };
  StepArrays copy = *this;
  copy.master = moved(master);
  copy.gradient = moved(gradient);
  copy.shown = moved(shown);
  for (auto& state : copy.states) state = moved(state);
  return copy;
}

// At addresses as odd as the master's.
void StepArrays::halve() {
  const auto bits = master.view(at::kInt);
  const auto shift = static_cast<int>(master.storage_offset());
  shown = shifted(engine::nearest_halves(master), master.device(), shift);
  lower = shifted(bits.to(at::kShort), master.device(), shift);
}

void StepArrays::join() {
  master.view(at::kInt).copy_(shown.view(at::kShort).to(at::kInt) * 0x10000 + lower);
}

uint64_t StepArrays::name_hash() const {
  return optim::hash_of("tensor " + std::to_string(tensor));
}

optim::PieceElements StepArrays::elements(uint64_t rounding) const {
  optim::PieceElements piece;
  piece.master = elements_of(master);
  piece.gradient = elements_of(gradient);
  piece.shown = elements_of(shown);
  for (size_t i = 0; i < states.size(); ++i) piece.states[i] = elements_of(states[i]);
  piece.numel = master.numel();
  piece.first = first;
  piece.rounding = optim::RoundingKey::of_tensor(rounding, name_hash());
  return piece;
}

optim::DevicePiece StepArrays::piece() const {
  optim::DevicePiece entry;
  entry.master = lower.defined() ? optim::DeviceArray{lower.data_ptr(), optim::StoredAs::lower_half}
                                 : array_of(master);
  entry.gradient = array_of(gradient);
  entry.shown = array_of(shown);
  for (size_t i = 0; i < states.size(); ++i) entry.states[i] = array_of(states[i]);
  entry.numel = master.numel();
  entry.first = first;
  entry.name_hash = name_hash();
  entry.setting = setting;
  entry.tensor = tensor;
  return entry;
}

std::vector<int64_t> awkward_sizes() {
  return {1,    2,    3,    4,    5,    7,    8,       31,      1023,      1024,
          1027, 2048, 4095, 4096, 4097, 8191, 100'003, 1 << 20, 10'000'003};
}

std::vector<optim::DevicePiece> pieces_of(const std::vector<StepArrays>& arrays) {
  std::vector<optim::DevicePiece> pieces;
  for (const auto& one : arrays) pieces.push_back(one.piece());
  return pieces;
}

std::vector<StepArrays> copies_on(at::Device device, const std::vector<StepArrays>& arrays,
                                  int shift) {
  std::vector<StepArrays> copies;
  for (const auto& one : arrays) copies.push_back(one.copied_to(device, shift));
  return copies;
}

void expect_same_bits(const std::vector<StepArrays>& cuda, const std::vector<StepArrays>& cpu,
                      const std::string& what) {
  for (size_t i = 0; i < cpu.size(); ++i) {
    const auto name = what + ", " + std::to_string(cpu[i].master.numel()) + " elements, ";
    expect_same(cuda[i].master, cpu[i].master, name + "master");
    expect_same(cuda[i].shown, cpu[i].shown, name + "shown");
    for (size_t k = 0; k < cpu[i].states.size(); ++k) {
      expect_same(cuda[i].states[k], cpu[i].states[k], name + "state " + std::to_string(k));
    }
  }
}

}  // namespace fullshard::testing
