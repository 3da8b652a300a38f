// SPDX-License-Identifier: Apache-2.0
// From a Hugging Face config.json or the name of a preset to a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/make_options.h"

namespace fullshard {

// By "architectures" and "model_type" of the text of a config.json. `where` names it in errors. An
// architecture or option that is not supported is one error (kind input) that lists all of them.
// So are sizes that no model has, or that are not those of `options.weights`, before anything is
// built. Parameters hold no meaningful values yet: initialise() or a file gives them.
std::shared_ptr<LanguageModel> make_model(const std::string& config_json, const std::string& where,
                                          const MakeOptions& options = {});

// "gpt2-124m", "llama-15m", … as config.json texts; an unknown name is an error that lists them.
std::string preset_config(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace fullshard
