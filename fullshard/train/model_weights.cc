// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/model_weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/json_text.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/text/byte_tokenizer.h"

namespace fullshard {
namespace {

FileNames names_of(const LanguageModel& model) {
  return [&model](const std::string& parameter) {
    const auto found = model.file_name(parameter);
    return stored::NameInFile{found.name, found.transposed, found.others};
  };
}

// The dtype of the weights beside it; the rest stays as it was.
std::string config_for(const LanguageModel& model, at::ScalarType dtype) {
  const std::string text = model.config_json();
  auto config = base::parse_json<nlohmann::ordered_json>(text);
  const std::string name = dtype == at::kBFloat16 ? "bfloat16"
                           : dtype == at::kHalf   ? "float16"
                                                  : "float32";
  const char* key = config.contains("torch_dtype") ? "torch_dtype" : "dtype";
  if (config.contains(key) && config[key] == name) return text;
  config[key] = name;
  return config.dump(2) + "\n";
}

void remove_folder(const std::string& folder) {
  for (const std::string& name : base::names_in_folder(folder))
    ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

void make_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    fail_as(ErrorKind::input, "{}: cannot be made: {}", folder, std::strerror(errno));
  }
}

void draw_weights(const LanguageModel& model, ShardedModel& sharded, uint64_t seed,
                  const std::function<bool(const std::string&)>& is_chosen) {
  initialise_weights(
      sharded, seed,
      [&model](const std::string& name, at::Tensor& tensor, uint64_t own_seed) {
        model.initialise(name, tensor, at::detail::createCPUGenerator(own_seed));
      },
      at::get_num_threads(), is_chosen);
}

bool belongs_to_tokenizer(const std::string& name) {
  return name == "tokenizer.json" || name == "tokenizer_config.json" ||
         name == "special_tokens_map.json" || name == "added_tokens.json" || name == "vocab.json" ||
         name == "merges.txt" || name == "vocab.txt" || name == "generation_config.json" ||
         name == "chat_template.jinja" || name.ends_with(".model");
}

void copy_tokenizer(const std::string& from, const std::string& folder) {
  const auto copy = [&](const std::string& path, const std::string& name) {
    if (const auto text = report::read_whole_file(path))
      report::write_whole_file(folder + "/" + name, *text);
  };
  if (base::is_folder(from)) {
    for (const std::string& name : base::names_in_folder(from)) {
      if (belongs_to_tokenizer(name)) copy(from + "/" + name, name);
    }
  } else {
    copy(from, from.substr(from.rfind('/') + 1));
  }
}

// Only its name changes when all is there; an older folder of that name goes.
void put_in_place(const std::string& made, const std::string& folder) {
  const std::string old = folder + ".old";
  remove_folder(old);
  if (base::is_folder(folder) && std::rename(folder.c_str(), old.c_str()) != 0) {
    fail_as(ErrorKind::input, "{}: cannot be replaced: {}", folder, std::strerror(errno));
  }
  if (std::rename(made.c_str(), folder.c_str()) != 0) {
    fail_as(ErrorKind::input, "{}: cannot be made: {}", folder, std::strerror(errno));
  }
  remove_folder(old);
}

}  // namespace

LoadOptions load_options_of(const LanguageModel& model) {
  LoadOptions options{.names = names_of(model), .is_ignored = [&model](const std::string& name) {
                        return model.is_ignored_in_files(name);
                      }};
  for (const auto& item : model.named_parameters()) options.order.push_back(item.key());
  return options;
}

stored::ModelRecord record_of(const LanguageModel& model) {
  stored::ModelRecord record{.config = model.config_json(), .names = {}};
  const auto add = [&](const std::string& own) {
    const auto in_file = model.file_name(own);
    const bool differs = in_file.name != own || in_file.transposed;
    if (differs) record.names[own] = {in_file.name, in_file.transposed, {}};
  };
  for (const auto& item : model.named_parameters()) add(item.key());
  for (const auto& item : model.named_buffers()) add(item.key());
  return record;
}

void load_model_weights(const std::string& folder, const LanguageModel& model,
                        ShardedModel& sharded, const NewParameters& drawn) {
  std::unique_ptr<TensorSource> source;
  const auto problem = engine::error_of([&] { source = open_weights(folder); });
  engine::throw_alike(checkpoint::patient_ranks(sharded.mesh()), problem, "loading");
  const std::set<std::string> names(drawn.names.begin(), drawn.names.end());
  const auto is_drawn = [&](const std::string& name) { return names.contains(name); };
  LoadOptions options = load_options_of(model);
  options.is_left_out = is_drawn;
  load_weights(*source, sharded, options);
  if (!names.empty()) draw_weights(model, sharded, drawn.seed, is_drawn);
}

void make_new_weights(const LanguageModel& model, ShardedModel& sharded, uint64_t seed) {
  draw_weights(model, sharded, seed, {});
}

void save_model_folder(const std::string& folder, const LanguageModel& model, ShardedModel& sharded,
                       const SaveModelOptions& options) {
  const Communicator everyone = checkpoint::patient_ranks(sharded.mesh());
  const bool writes = everyone.rank() == 0;
  const std::string made = folder + ".part";
  const auto on_first = [&](const std::function<void()>& body) {
    engine::throw_alike(everyone, writes ? engine::error_of(body) : std::nullopt, "saving");
  };
  on_first([&] {
    remove_folder(made);
    make_folder(made);
    report::write_whole_file(made + "/config.json", config_for(model, options.dtype));
    if (options.tokenizer == "bytes") {
      report::write_whole_file(made + "/tokenizer_config.json", text::byte_tokenizer_config());
    } else if (!options.tokenizer.empty()) {
      copy_tokenizer(options.tokenizer, made);
    }
  });
  try {
    save_weights(made, sharded, {.names = names_of(model), .dtype = options.dtype});
    on_first([&] { put_in_place(made, folder); });
  } catch (...) {
    if (writes) remove_folder(made);
    throw;
  }
}

void write_whole_weights(const std::string& folder, const LanguageModel& model,
                         ShardedModel& sharded) {
  const Communicator everyone = checkpoint::patient_ranks(sharded.mesh());
  const auto write_config = [&] {
    report::write_whole_file(folder + "/config.json", config_for(model, at::kFloat));
  };
  engine::throw_alike(
      everyone, everyone.rank() == 0 ? engine::error_of(write_config) : std::nullopt, "saving");
  save_weights(folder, sharded, {.names = names_of(model)});
}

}  // namespace fullshard
