// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/hub_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace fullshard::base {
namespace {

HubCache::Lookup variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(HubCache, IsWhereTheVariablesSay) {
  EXPECT_EQ(HubCache(variables({{"HOME", "/h"}})).folder(), "/h/.cache/huggingface/hub");
  EXPECT_EQ(HubCache(variables({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})).folder(),
            "/x/huggingface/hub");
  EXPECT_EQ(HubCache(variables({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}})).folder(), "/f/hub");
  EXPECT_EQ(HubCache(variables({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/o"}})).folder(),
            "/o");
  EXPECT_EQ(HubCache(variables({{"HUGGINGFACE_HUB_CACHE", "/o"}, {"HF_HUB_CACHE", "/n"}})).folder(),
            "/n");
  EXPECT_EQ(HubCache(variables({})).folder(), "");
  EXPECT_EQ(HubCache(variables({})).find(HubKind::model, "gpt2"), "");
}

TEST(HubNames, AreThoseOfTheHub) {
  for (const char* name : {"gpt2", "google-t5/t5-small", "meta-llama/Llama-3.2-1B"}) {
    EXPECT_TRUE(is_hub_name(name)) << name;
  }
  for (const char* text :
       {"", "/gpt2", "a/b/c", "../x", "a/..", "a b", "a/", "./x", "a--b", "~/m"}) {
    EXPECT_FALSE(is_hub_name(text)) << text;
  }
  EXPECT_FALSE(is_hub_name(std::string(201, 'a')));
  EXPECT_EQ(download_command(HubKind::model, "google-t5/t5-small"),
            "hf download google-t5/t5-small");
  EXPECT_EQ(download_command(HubKind::dataset, "wmt/wmt16"),
            "hf download --repo-type dataset wmt/wmt16");
}

TEST(HubCache, FindsTheMainRevision) {
  char pattern[] = "/tmp/fullshard-hub-XXXXXX";
  const std::string cache = ::mkdtemp(pattern);
  const std::string model = cache + "/models--google-t5--t5-small";
  const std::string hash = "0123456789abcdef0123456789abcdef01234567";
  std::filesystem::create_directories(model + "/snapshots/" + hash);
  std::filesystem::create_directories(model + "/refs");
  const HubCache hub(variables({{"HF_HUB_CACHE", cache}}));
  const auto find = [&] { return hub.find(HubKind::model, "google-t5/t5-small"); };
  EXPECT_EQ(find(), "");  // no revision is named
  std::ofstream(model + "/refs/main") << hash << "\n";
  EXPECT_EQ(find(), model + "/snapshots/" + hash);
  EXPECT_EQ(hub.find(HubKind::dataset, "google-t5/t5-small"), "");
  EXPECT_EQ(hub.find(HubKind::model, "t5-small"), "");
  std::ofstream(model + "/refs/main") << "../../..";  // no hash: it leads out of the cache
  EXPECT_EQ(find(), "");
  std::ofstream(model + "/refs/main") << std::string(40, 'a');  // not downloaded
  EXPECT_EQ(find(), "");
  std::filesystem::remove_all(cache);
}

}  // namespace
}  // namespace fullshard::base
