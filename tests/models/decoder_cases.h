// SPDX-License-Identifier: Apache-2.0
// Small decoders for tests, from the fixtures of make_decoders.py and from settings.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/models/common/language_model.h"

namespace fullshard::testing {

std::vector<std::string> decoder_folders();
std::shared_ptr<LanguageModel> load_decoder(const std::string& folder,
                                            const std::string& config = "config.json");

nlohmann::json tiny_gpt2();
nlohmann::json tiny_llama();
// Every parameter initialised, by one generator.
std::shared_ptr<LanguageModel> make_tiny(const nlohmann::json& config);
// What make_model() throws.
std::string refusal_of(const nlohmann::json& config);

ModelInputs some_inputs(int64_t batch = 2, int64_t length = 12, int64_t vocabulary = 50);

}  // namespace fullshard::testing
