// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/records.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "fullshard/data/text/json_records.h"
#include "fullshard/data/text/table_rows.h"

namespace fullshard::data {
namespace {

PairRecord translation_in(const TextBlock& block, int64_t number, const Json& texts,
                          const PairLanguages& languages) {
  if (!texts.is_object()) {
    fail_at(block, number, "field 'translation' is {}, expected an object of languages",
            texts.type_name());
  }
  if (languages.source.empty() || languages.target.empty()) {
    fail_at(block, number,
            "has a text for each of the languages {}; name the source and the target language",
            names_in(texts));
  }
  return {string_in(block, number, texts, languages.source),
          string_in(block, number, texts, languages.target), number};
}

PairRecord pair_in(const TextBlock& block, int64_t number, const Json& object,
                   const PairLanguages& languages) {
  if (const auto texts = object.find("translation"); texts != object.end()) {
    return translation_in(block, number, *texts, languages);
  }
  for (const auto& [source, target] : {std::pair("src", "tgt"), std::pair("source", "target")}) {
    if (!object.contains(source) && !object.contains(target)) continue;
    return {string_in(block, number, object, source), string_in(block, number, object, target),
            number};
  }
  fail_at(block, number,
          "is not a pair; expected the fields src and tgt, source and target, or translation; its "
          "fields: {}",
          names_in(object));
}

std::pair<size_t, size_t> pair_columns(const TextBlock& block, const PairLanguages& languages) {
  const TableLayout& layout = *block.layout;
  if (!languages.source.empty() && layout.column(languages.source)) {
    return {column_of(block, languages.source), column_of(block, languages.target)};
  }
  for (const auto& [source, target] : {std::pair("src", "tgt"), std::pair("source", "target")}) {
    if (layout.column(source)) return {column_of(block, source), column_of(block, target)};
  }
  fail_as(
      ErrorKind::input,
      "{}: has no pairs; expected the columns src and tgt, source and target, or the languages' "
      "names; its first line says {}",
      block.file->name(), layout.column_names());
}

}  // namespace

std::vector<TextRecord> read_texts(const TextBlock& block, const std::string& field,
                                   OwnDocuments own) {
  std::vector<TextRecord> records;
  if (has_columns(block)) {
    const size_t column = column_of(block, field);
    for_each_row(block, [&](const TableRow& row, int64_t number) {
      records.push_back({row.fields[column], number});
    });
    return records;
  }
  for_each_object(block, [&](const Json& object, int64_t number) {
    if (own == OwnDocuments::refused && is_own_document(object)) {
      throw OwnDocumentFound(
          fmt::format("{}: is a separate document, expected a text", block.place(number)),
          ErrorKind::input);
    }
    records.push_back({string_in(block, number, object, field), number});
    return true;
  });
  return records;
}

std::vector<PairRecord> read_pairs(const TextBlock& block, const PairLanguages& languages) {
  std::vector<PairRecord> records;
  if (has_columns(block)) {
    const auto columns = pair_columns(block, languages);
    for_each_row(block, [&](const TableRow& row, int64_t number) {
      records.push_back({row.fields[columns.first], row.fields[columns.second], number});
    });
    return records;
  }
  if (block.kind == FileKind::json) {
    for_each_object(block, [&](const Json& object, int64_t number) {
      records.push_back(pair_in(block, number, object, languages));
      return true;
    });
    return records;
  }
  for_each_line(block, [&](std::string_view line, int64_t number) {
    const auto num_columns = 1 + std::ranges::count(line, '\t');
    if (num_columns != 2) {
      fail_at(block, number, "has {} column{}, expected a source, a tab and a target", num_columns,
              num_columns == 1 ? "" : "s");
    }
    const size_t tab = line.find('\t');
    records.push_back(
        {std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)), number});
    return true;
  });
  return records;
}

}  // namespace fullshard::data
