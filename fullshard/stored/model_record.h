// SPDX-License-Identifier: Apache-2.0
// What a checkpoint stores about its model in addition to the tensors, in the caller's own part of
// the progress: its configuration, and the names of its tensors in files of other programs. With it
// a checkpoint becomes a Hugging Face folder without the program that saved it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/stored/name_in_file.h"

namespace fullshard::stored {

struct ModelRecord {
  std::string config = {};   // config.json; empty: not known
  std::string adapter = {};  // adapter_config.json; empty: the checkpoint holds a whole model
  std::map<std::string, NameInFile> names = {};  // by the model's own; only what differs
  // Second names that a state_dict has but the model here does not, as of a head that is the
  // embedding, mapped to the name in files whose values they have.
  std::map<std::string, std::string> tied = {};
};

// Puts the record into Progress::extra, and reads it from there; other keys of that are left alone.
// A value under this key that is not a record is an error of the kind input that begins with
// `where`.
std::string with_record(const std::string& extra, const ModelRecord& record);
ModelRecord record_in(const std::string& extra, const std::string& where);

// The tensors under their names in files, transposed where files have them so, and under second
// names; without those that files do not carry.
std::unique_ptr<TensorSource> under_file_names(std::unique_ptr<TensorSource> source,
                                               const ModelRecord& record);
// The same for one name; empty: files do not carry it.
std::string file_name_of(const std::string& name, const ModelRecord& record);

}  // namespace fullshard::stored
