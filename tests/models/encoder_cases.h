// SPDX-License-Identifier: Apache-2.0
// Fixtures of tests/fixtures/models/make_encoders.py as models and expectations.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/make_options.h"
#include "tests/models/tensor_file.h"

namespace fullshard::testing {

using MakeModel = std::function<std::shared_ptr<LanguageModel>(
    const nlohmann::json&, const std::string&, const MakeOptions&)>;

std::string fixture_path(const std::string& file);
nlohmann::json fixture_json(const std::string& file);

// What make_…() is told of a file.
MakeOptions made_for(const TensorFile& file);

// The model of a fixture's folder with the values of its file. Parameters that the file lacks and
// names in it that are neither used nor ignored are failures.
std::shared_ptr<LanguageModel> load_fixture(const MakeModel& make, const std::string& folder,
                                            const std::string& config = "config.json");

ModelInputs inputs_of(const TensorFile& reference);

// Within 1e-5 of the largest expected value, or of `least_scale` where that is larger.
void expect_close(const std::string& name, const at::Tensor& found, const at::Tensor& expected,
                  double least_scale = 0);
// Every gradient of the reference, and no other.
void expect_gradients(const LanguageModel& model, const TensorFile& reference);
// Logits, loss and gradients of a fixture.
void expect_reference(LanguageModel& model, const TensorFile& reference);

// The names of parameters in the module tree.
std::vector<std::string> parameter_names(const LanguageModel& model);
at::Tensor parameter_of(const LanguageModel& model, const std::string& name);
// A parameter's first values, by a generator with this seed.
at::Tensor initial_values(const LanguageModel& model, const std::string& name, uint64_t seed = 1);

}  // namespace fullshard::testing
