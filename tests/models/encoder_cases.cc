// SPDX-License-Identifier: Apache-2.0
#include "tests/models/encoder_cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr double kTolerance = 1e-5;

const at::Tensor* find_in_file(const TensorFile& file, const LanguageModel::FileName& names,
                               std::set<std::string>& used) {
  std::vector<std::string> candidates = {names.name};
  candidates.insert(candidates.end(), names.others.begin(), names.others.end());
  for (const auto& name : candidates) {
    const auto found = file.find(name);
    if (found == file.end()) continue;
    used.insert(name);
    return &found->second;
  }
  return nullptr;
}

double largest_gradient(const TensorFile& reference) {
  double largest = 0;
  for (const auto& [name, tensor] : reference) {
    if (name.starts_with("grad.")) largest = std::max(largest, tensor.abs().max().item<double>());
  }
  return largest;
}

}  // namespace

std::string fixture_path(const std::string& file) {
  return std::string(FULLSHARD_SOURCE_DIR) + "/tests/fixtures/models/" + file;
}

nlohmann::json fixture_json(const std::string& file) {
  return nlohmann::json::parse(read_file(fixture_path(file)));
}

MakeOptions made_for(const TensorFile& file) {
  StoredWeights::Shapes shapes;
  for (const auto& [name, tensor] : file) shapes[name] = tensor.sizes().vec();
  const auto are_equal = [file](const std::string& name, const std::string& other) {
    return file.at(name).equal(file.at(other));
  };
  return {.weights = {std::move(shapes), are_equal}};
}

std::shared_ptr<LanguageModel> load_fixture(const MakeModel& make, const std::string& folder,
                                            const std::string& config) {
  const at::NoGradGuard no_grad;
  const auto file = read_tensor_file(fixture_path(folder + "/model.safetensors"));
  auto model = make(fixture_json(folder + "/" + config), config, made_for(file));
  std::set<std::string> used;
  for (auto& item : model->named_parameters()) {
    const auto names = model->file_name(item.key());
    const auto* values = find_in_file(file, names, used);
    EXPECT_NE(values, nullptr) << "no values for " << item.key();
    if (values != nullptr) item.value().copy_(names.transposed ? values->t() : *values);
  }
  for (const auto& [name, tensor] : file) {
    EXPECT_TRUE(used.contains(name) || model->is_ignored_in_files(name)) << name << " is not used";
  }
  return model;
}

ModelInputs inputs_of(const TensorFile& reference) {
  const auto part = [&](const char* name) {
    const auto found = reference.find(name);
    return found == reference.end() ? at::Tensor() : found->second;
  };
  ModelInputs inputs;
  inputs.input_ids = part("input_ids");
  inputs.attention_mask = part("attention_mask");
  inputs.token_type_ids = part("token_type_ids");
  inputs.labels = part("labels");
  inputs.wants_logits = true;
  return inputs;
}

void expect_close(const std::string& name, const at::Tensor& found, const at::Tensor& expected,
                  double least_scale) {
  ASSERT_TRUE(found.defined()) << name;
  ASSERT_EQ(found.sizes(), expected.sizes()) << name;
  const double scale = std::max(expected.abs().max().item<double>(), least_scale);
  const double difference = (found - expected).abs().max().item<double>();
  EXPECT_LE(difference, kTolerance * scale) << name << ", largest value " << scale;
}

void expect_gradients(const LanguageModel& model, const TensorFile& reference) {
  // Some gradients are zero but for rounding, as that of a key's bias, to which softmax is blind.
  const double least_scale = 1e-3 * largest_gradient(reference);
  size_t compared = 0;
  for (const auto& item : model.named_parameters()) {
    const auto names = model.file_name(item.key());
    const auto expected = reference.find("grad." + names.name);
    const bool has_gradient = item.value().grad().defined();
    EXPECT_EQ(has_gradient, expected != reference.end()) << item.key();
    if (!has_gradient || expected == reference.end()) continue;
    const auto& values = expected->second;
    expect_close(expected->first, item.value().grad(), names.transposed ? values.t() : values,
                 least_scale);
    ++compared;
  }
  const auto is_gradient = [](const auto& entry) { return entry.first.starts_with("grad."); };
  EXPECT_EQ(compared, std::ranges::count_if(reference, is_gradient));
}

void expect_reference(LanguageModel& model, const TensorFile& reference) {
  const auto outputs = model.forward(inputs_of(reference));
  expect_close("logits", outputs.logits, reference.at("logits"));
  expect_close("loss", outputs.loss.reshape(1), reference.at("loss"));
  outputs.loss.backward();
  expect_gradients(model, reference);
}

std::vector<std::string> parameter_names(const LanguageModel& model) {
  return model.named_parameters().keys();
}

at::Tensor parameter_of(const LanguageModel& model, const std::string& name) {
  return model.named_parameters()[name];
}

at::Tensor initial_values(const LanguageModel& model, const std::string& name, uint64_t seed) {
  auto parameter = parameter_of(model, name).detach().clone();
  model.initialise(name, parameter, at::make_generator<at::CPUGeneratorImpl>(seed));
  return parameter;
}

}  // namespace fullshard::testing
