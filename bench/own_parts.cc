// SPDX-License-Identifier: Apache-2.0
// What is written here though libraries have it, beside those of them that this machine has: MB per
// second of processor time, and how many answers differ. Libraries are opened at run time, so that
// nothing depends on them. Prints a JSON array of rows.
//
//   bench_own_parts ASCII.txt MIXED.txt
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/base/base64.h"
#include "fullshard/base/crc32c.h"
#include "fullshard/base/sha256.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/text/unicode/normal_forms.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"

namespace {

using namespace fullshard;
using Bytes = const unsigned char*;

volatile uint64_t sink;

// Null: this machine does not have it.
template <class Function>
Function* from_library(const char* library, const char* name) {
  void* handle = ::dlopen(library, RTLD_NOW);
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle, name));
}

class Rows {
 public:
  // Processor time, the best of several rounds; `work` gives something of its answer.
  void add(const std::string& part, const char* who, size_t bytes,
           const std::function<uint64_t()>& work) {
    std::clock_t best = std::numeric_limits<std::clock_t>::max();
    for (int round = 0; round < 15; ++round) {
      const std::clock_t start = std::clock();
      sink = work();
      best = std::min(best, std::clock() - start);
    }
    const double seconds = static_cast<double>(best) / CLOCKS_PER_SEC;
    rows_.push_back({{"part", part},
                     {"who", who},
                     {"mb_per_s", static_cast<double>(bytes) / seconds / 1e6},
                     {"answer", sink}});
  }
  void add_differences(const std::string& part, int count) {
    rows_.push_back({{"part", part}, {"who", "utf8proc"}, {"differs", count}});
  }
  const nlohmann::json& all() const { return rows_; }

 private:
  nlohmann::json rows_ = nlohmann::json::array();
};

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string noise(size_t bytes) {
  std::string text(bytes, '\0');
  uint64_t state = 1;
  for (char& byte : text) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return text;
}

void measure_checksums(Rows& rows) {
  const std::string data = noise(size_t{16} << 20);
  const auto* at = reinterpret_cast<Bytes>(data.data());
  const size_t size = data.size();
  const auto length = static_cast<int64_t>(size);
  rows.add("CRC-32", "fullshard", size, [&] { return formats::crc32(0, at, length); });
  if (auto* sum =
          from_library<unsigned long(unsigned long, Bytes, size_t)>("libz.so.1", "crc32_z")) {
    rows.add("CRC-32", "zlib", size, [&] { return sum(0, at, size); });
  }
  using Crc = uint32_t(uint32_t, Bytes, size_t);
  if (auto* sum = from_library<Crc>("libdeflate.so.0", "libdeflate_crc32")) {
    rows.add("CRC-32", "libdeflate", size, [&] { return sum(0, at, size); });
  }
  if (auto* sum = from_library<Crc>("libisal.so.2", "crc32_gzip_refl")) {
    rows.add("CRC-32", "ISA-L", size, [&] { return sum(0, at, size); });
  }
  rows.add("CRC-32C", "fullshard", size, [&] { return base::crc32c(at, length); });
  if (auto* sum = from_library<uint32_t(Bytes, int, uint32_t)>("libisal.so.2", "crc32_iscsi")) {
    rows.add("CRC-32C", "ISA-L", size, [&] { return ~sum(at, static_cast<int>(size), ~0U); });
  }
}

uint64_t first_bytes(const unsigned char* digest) {
  uint64_t value = 0;
  for (int i = 0; i < 6; ++i) value = value << 8 | digest[i];
  return value;
}

void measure_digests(Rows& rows) {
  const std::string data = noise(size_t{8} << 20);
  rows.add("SHA-256", "fullshard", data.size(),
           [&] { return first_bytes(base::sha256(data).data()); });
  using Sha = unsigned char*(Bytes, size_t, unsigned char*);
  if (auto* sha = from_library<Sha>("libcrypto.so.3", "SHA256")) {
    unsigned char digest[32];
    rows.add("SHA-256", "libcrypto", data.size(), [&] {
      return first_bytes(sha(reinterpret_cast<Bytes>(data.data()), data.size(), digest));
    });
  }
  const std::string text = base::encode_base64(data);
  rows.add("base64, decoding", "fullshard", text.size(),
           [&] { return first_bytes(reinterpret_cast<Bytes>(base::decode_base64(text)->data())); });
  if (auto* decode =
          from_library<int(unsigned char*, Bytes, int)>("libcrypto.so.3", "EVP_DecodeBlock")) {
    std::string decoded(text.size(), '\0');
    auto* to = reinterpret_cast<unsigned char*>(decoded.data());
    rows.add("base64, decoding", "libcrypto", text.size(), [&] {
      decode(to, reinterpret_cast<Bytes>(text.data()), static_cast<int>(text.size()));
      return first_bytes(to);
    });
  }
}

using Form = unsigned char*(Bytes);

std::string form_by(Form* form, const std::string& text) {
  unsigned char* made = form(reinterpret_cast<Bytes>(text.c_str()));
  std::string copy = made == nullptr ? "" : reinterpret_cast<char*>(made);
  std::free(made);
  return copy;
}

struct NamedForm {
  const char* name;
  text::NormalForm form;
  Form* peer;
};

std::vector<NamedForm> forms() {
  std::vector<NamedForm> all = {{"NFC", text::NormalForm::nfc, nullptr},
                                {"NFD", text::NormalForm::nfd, nullptr},
                                {"NFKC", text::NormalForm::nfkc, nullptr},
                                {"NFKD", text::NormalForm::nfkd, nullptr}};
  for (auto& one : all) {
    for (const char* library : {"libutf8proc.so.2", "libutf8proc.so.3"}) {
      const std::string name = std::string("utf8proc_") + one.name;
      if (one.peer == nullptr) one.peer = from_library<Form>(library, name.c_str());
    }
  }
  return all;
}

void measure_forms(Rows& rows, const std::string& text, const std::string& kind) {
  for (const auto& [name, form, peer] : forms()) {
    const std::string part = name + (", " + kind);
    rows.add(part, "fullshard", text.size(),
             [&, form = form] { return text::to_normal_form(text, form).size(); });
    if (peer == nullptr) continue;
    rows.add(part, "utf8proc", text.size(),
             [&, peer = peer] { return form_by(peer, text).size(); });
  }
}

template <class Differs>
int count_characters_that(const Differs& differs) {
  int count = 0;
  for (uint32_t character = 1; character < 0x110000; ++character) {
    if (character < 0xD800 || character >= 0xE000) count += differs(character);
  }
  return count;
}

// Ours are the answers of the tokenizers package (tests/text/characters_test.cc).
void count_differences(Rows& rows) {
  for (const auto& [name, form, peer] : forms()) {
    if (peer == nullptr) return;
    rows.add_differences(name,
                         count_characters_that([&, form = form, peer = peer](uint32_t character) {
                           std::string text;
                           text::append_utf8(text, character);
                           return text::to_normal_form(text, form) != form_by(peer, text);
                         }));
  }
  auto* category = from_library<int(int)>("libutf8proc.so.2", "utf8proc_category");
  if (category == nullptr) return;
  struct Class {
    const char* name;
    uint16_t bit;
    int first, last;  // of utf8proc's categories
  };
  for (const auto& [name, bit, first, last] :
       {Class{"\\p{L}", kLetter, 1, 5}, Class{"\\p{N}", kNumber, 9, 11},
        Class{"\\p{M}", kMark, 6, 8}, Class{"\\p{Mn}", kNonspacing, 6, 6}}) {
    rows.add_differences(
        name, count_characters_that([&, bit = bit, first = first, last = last](uint32_t character) {
          const int found = category(static_cast<int>(character));
          return text::Characters::get().has(character, bit) != (found >= first && found <= last);
        }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Rows rows;
  measure_checksums(rows);
  measure_digests(rows);
  measure_forms(rows, read(argv[1]), "ASCII");
  measure_forms(rows, read(argv[2]), "many scripts");
  count_differences(rows);
  std::cout << rows.all().dump(1) << '\n';
}
