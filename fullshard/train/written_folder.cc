// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/written_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/text_file.h"
#include "fullshard/base/write_problem.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/text/byte_tokenizer.h"

namespace fullshard::train {
namespace {

bool belongs_to_tokenizer(const std::string& name) {
  return name == "tokenizer.json" || name == "tokenizer_config.json" ||
         name == "special_tokens_map.json" || name == "added_tokens.json" || name == "vocab.json" ||
         name == "merges.txt" || name == "vocab.txt" || name == "generation_config.json" ||
         name == "chat_template.jinja" || name.ends_with(".model");
}

// A file that a model's or an adapter's folder is made of. Of an older one none stays: weights in
// more files than the new ones would be read beside them.
bool belongs_to_model(const std::string& name) {
  const bool is_weights = name.starts_with("model") || name.starts_with("adapter_model") ||
                          name.starts_with("pytorch_model");
  const bool has_form =
      name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".index.json");
  return (is_weights && has_form) || name == "config.json" || name == "adapter_config.json" ||
         name.ends_with(".part") || belongs_to_tokenizer(name);
}

bool is_folder_itself(const std::string& path) {
  struct stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// Files of others in it are those of a folder that was just being replaced when a run was killed:
// they stay, and so come to their place with it.
void make_folder(const std::string& folder) {
  remove_written_folder(folder);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    fail_as(ErrorKind::input, "{}: cannot be made: {}", folder, std::strerror(errno));
  }
}

// What others have put into the older folder moves along. Out of a link nothing is taken.
void keep_of_others(const std::string& old, const std::string& folder) {
  if (!is_folder_itself(old)) return;
  for (const std::string& name : base::names_in_folder(old)) {
    const std::string kept = folder + "/" + name;
    if (belongs_to_model(name) || base::is_there(kept)) continue;
    const std::string own = old + "/" + name;
    if (std::rename(own.c_str(), kept.c_str()) == 0) continue;
    const int reason = errno;
    fail_as(base::kind_of_write_problem(reason), "{}: cannot be moved to {}: {}", own, kept,
            std::strerror(reason));
  }
}

// Only names change when all is there.
void put_in_place(const std::string& made, const std::string& folder) {
  base::exchange_names(made, folder);
  keep_of_others(made, folder);
  base::remove_flat_folder(made);
}

void copy_file(const std::string& path, const std::string& target,
               std::vector<std::string>& written) {
  const auto text = base::find_text_file(path);
  if (!text) return;
  report::write_whole_file(target, *text);
  written.push_back(target);
}

}  // namespace

void write_folder(const std::string& folder, const ShardedModel& model,
                  const std::function<void(const std::string& made)>& begin,
                  const std::function<void(const std::string& made)>& write) {
  const Communicator everyone = checkpoint::patient_ranks(model.mesh());
  const bool writes = everyone.rank() == 0;
  const std::string made = folder + ".part";
  const auto on_first = [&](const std::function<void()>& body) {
    engine::throw_alike(everyone, writes ? engine::error_of(body) : std::nullopt, "saving");
  };
  on_first([&] {
    make_folder(made);
    begin(made);
  });
  try {
    write(made);
    on_first([&] { put_in_place(made, folder); });
  } catch (...) {
    if (writes) remove_written_folder(made);
    throw;
  }
}

void write_folder(const std::string& folder,
                  const std::function<void(const std::string& made)>& write) {
  const std::string made = folder + ".part";
  try {
    make_folder(made);
    write(made);
    put_in_place(made, folder);
  } catch (...) {
    remove_written_folder(made);
    throw;
  }
}

void remove_written_folder(const std::string& folder) {
  if (is_folder_itself(folder)) {
    for (const std::string& name : base::names_in_folder(folder)) {
      if (belongs_to_model(name)) ::unlink((folder + "/" + name).c_str());
    }
    ::rmdir(folder.c_str());
  } else {
    ::unlink(folder.c_str());
  }
}

bool has_tokenizer(const std::string& folder) {
  for (const std::string& name : base::names_in_folder(folder)) {
    if (name == "tokenizer.json" || name == "vocab.json" || name == "vocab.txt" ||
        name.ends_with(".model")) {
      return true;
    }
  }
  return text::names_byte_tokenizer(folder);
}

std::vector<std::string> copy_tokenizer(const std::string& from, const std::string& folder) {
  std::vector<std::string> written;
  if (from.empty()) return written;
  if (from == "bytes") {
    written.push_back(folder + "/tokenizer_config.json");
    report::write_whole_file(written.back(), text::byte_tokenizer_config());
  } else if (base::is_folder(from)) {
    for (const std::string& name : base::names_in_folder(from)) {
      if (belongs_to_tokenizer(name)) copy_file(from + "/" + name, folder + "/" + name, written);
    }
  } else {
    copy_file(from, folder + "/" + from.substr(from.rfind('/') + 1), written);
  }
  return written;
}

}  // namespace fullshard::train
