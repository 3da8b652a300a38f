#include "fullshard/comm/gloo_transport.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gloo_backend.h"
#include "fullshard/comm/gloo_watch.h"
#include "fullshard/comm/self_backend.h"

namespace fullshard {
namespace {

class GlooTransport : public Transport {
 public:
  GlooTransport(const GlooOptions& options, std::shared_ptr<Store> store,
                std::shared_ptr<Recorder> recorder)
      : options_(options),
        store_(std::move(store)),
        watch_(std::make_shared<GlooWatch>(store_->under("watch"), options.rank,
                                           static_cast<int>(options.hosts.size()),
                                           std::move(recorder))) {}

  std::string_view name() const override { return "gloo"; }

  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string& name) override {
    const int number = num_groups_++;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& ranks) {
      return std::find(ranks.begin(), ranks.end(), options_.rank) != ranks.end();
    });
    check(group != groups.end(), "gloo: rank {} is in none of the groups '{}'", options_.rank,
          name);
    if (group->size() == 1) return std::make_shared<SelfBackend>();
    GlooMembers members{.group = name, .rank = 0, .ranks = *group, .hosts = {}};
    for (const int rank : *group)
      members.hosts.push_back(options_.hosts[static_cast<size_t>(rank)]);
    members.rank =
        static_cast<int>(std::find(group->begin(), group->end(), options_.rank) - group->begin());
    auto connected = connect(members, fmt::format("group {}/{}", number, group->front()));
    return std::make_shared<GlooBackend>(std::move(members), std::move(connected), watch_,
                                         options_.timeouts);
  }

  void leave(const std::string& reason) noexcept override { watch_->leave(reason); }

 private:
  std::unique_ptr<GlooGroup> connect(const GlooMembers& members, const std::string& prefix) {
    try {
      return std::make_unique<GlooGroup>(*store_->under(prefix), members.rank, members.size(),
                                         options_.device, options_.timeouts.init);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      const auto gone = watch_->find_gone(members.ranks, {});
      fail("rank {}: group {} of ranks [{}] cannot connect: {}", options_.rank, members.group,
           fmt::join(members.ranks, ", "),
           gone ? fmt::format("rank {} {}; {}; {}", gone->rank, gone->how, gone->last, gone->hint)
                : text.substr(0, text.find('\n')));
    }
  }

  GlooOptions options_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<GlooWatch> watch_;
  int num_groups_ = 0;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               std::shared_ptr<Store> store,
                                               std::shared_ptr<Recorder> recorder) {
  return std::make_shared<GlooTransport>(options, std::move(store), std::move(recorder));
}

}  // namespace fullshard
