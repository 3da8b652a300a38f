#include "fullshard/models/common/activation.h"

#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>

#include <array>
#include <utility>

#include "fullshard/ops/activation.h"

namespace fullshard {

std::optional<Activation> activation_named(std::string_view name) {
  static constexpr std::array kNames = std::to_array<std::pair<std::string_view, Activation>>({
      {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
  });
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

Activation read_activation(ConfigReader& reader, std::string_view key,
                           const std::string& otherwise) {
  if (const auto kind = activation_named(reader.text(key, otherwise))) return *kind;
  reader.refuse(key, "gelu, gelu_new, gelu_pytorch_tanh, relu, silu and swish are supported");
  return *activation_named(otherwise);
}

at::Tensor activate(const at::Tensor& input, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return gelu(input, Gelu::exact);
    case Activation::gelu_tanh:
      return gelu(input, Gelu::tanh);
    case Activation::relu:
      return at::relu(input);
    case Activation::silu:
      break;
  }
  return at::silu(input);
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return geglu(gate, up, Gelu::exact);
    case Activation::gelu_tanh:
      return geglu(gate, up, Gelu::tanh);
    case Activation::relu:
      return at::relu(gate) * up;
    case Activation::silu:
      break;
  }
  return swiglu(gate, up);
}

}  // namespace fullshard
