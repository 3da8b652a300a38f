// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/exchanged_sum.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "fullshard/comm/ordered_sum.h"
#include "fullshard/comm/reduce_parts.h"

namespace fullshard::comm {
namespace {

class Reduction {
 public:
  // `output` receives what this rank reduces, from its first element on.
  Reduction(SumCarrier& carrier, const at::Tensor& rows, const at::Tensor& output, bool adds_output,
            const ExchangedSum& job)
      : carrier_(carrier),
        job_(job),
        rows_(rows),
        output_(output),
        adds_output_(adds_output),
        size_(static_cast<int>(job.hosts.size())),
        parts_(rows, size_),
        order_(job.hosts),
        element_(static_cast<int64_t>(rows.element_size())),
        sums_(sum_dtype(rows.scalar_type())),
        per_host_(order_.num_hosts() > 1 && order_.ranks_per_host > 1 ? order_.ranks_per_host : 0) {
    const int own = order_.place_of(job.rank);
    own_host_ = per_host_ > 0 ? own / per_host_ : 0;
    own_place_ = per_host_ > 0 ? own % per_host_ : 0;
    window_ = std::max<int64_t>(job.window_bytes / element_ / size_, 1);
  }

  void run() {
    int64_t longest = 0;
    for (int part = 0; part < parts_.num_parts; ++part) {
      longest = std::max(longest, parts_.numel(part));
    }
    window_ = std::min(window_, longest);
    for (first_ = 0; first_ < longest; first_ += window_) {
      per_host_ > 0 ? through_hosts() : directly();
    }
  }

 private:
  using Messages = std::vector<SumCarrier::Message>;

  // How much of what `owner` reduces lies in this turn.
  int64_t numel_of(int owner) const {
    return std::clamp<int64_t>(parts_.numel_of(owner) - first_, 0, window_);
  }
  std::byte* own_row(int owner) const {
    return static_cast<std::byte*>(rows_.data_ptr()) + (parts_.place_of(owner) + first_) * element_;
  }
  static void add_message(Messages& messages, void* begin, int64_t bytes, int peer) {
    if (bytes > 0) messages.push_back({begin, bytes, peer});
  }
  static std::byte* at_row(const at::Tensor& rows, int64_t row) {
    return static_cast<std::byte*>(rows.data_ptr()) +
           row * rows.size(-1) * static_cast<int64_t>(rows.element_size());
  }
  at::Tensor scratch(int64_t num_rows, at::ScalarType dtype) {
    return carrier_.scratch(num_rows * window_, dtype).view({num_rows, window_});
  }

  // Every rank sends every other what that one reduces.
  void directly() {
    if (!received_.defined()) received_ = scratch(size_, rows_.scalar_type());
    Messages sent, received;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == job_.rank) continue;
      add_message(sent, own_row(peer), numel_of(peer) * element_, peer);
      add_message(received, at_row(received_, peer), numel_of(job_.rank) * element_, peer);
    }
    carrier_.exchange(sent, received);
    std::vector<const void*> in_order;
    for (const int rank : order_.ranks) {
      in_order.push_back(rank == job_.rank ? own_row(rank) : at_row(received_, rank));
    }
    const bool is_one_line = order_.num_hosts() == 1 || order_.ranks_per_host == 1;
    if (is_one_line) return finish(in_order, rows_.scalar_type());
    finish(sums_of_hosts(in_order), sums_);
  }

  // Hosts that hold different numbers of ranks.
  std::vector<const void*> sums_of_hosts(std::span<const void* const> rows) {
    if (!host_sums_.defined()) host_sums_ = scratch(order_.num_hosts(), sums_);
    std::vector<const void*> sums;
    for (int host = 0; host < order_.num_hosts(); ++host) {
      const auto count = static_cast<size_t>(order_.rows_per_host[static_cast<size_t>(host)]);
      add_host(host, rows.first(count), numel_of(job_.rank));
      sums.push_back(at_row(host_sums_, host));
      rows = rows.subspan(count);
    }
    return sums;
  }

  void through_hosts() {
    sum_in_host();
    Messages sent, received;
    if (!host_rows_.defined()) host_rows_ = scratch(order_.num_hosts(), sums_);
    const auto sum_bytes = static_cast<int64_t>(c10::elementSize(sums_));
    std::vector<const void*> in_order;
    for (int host = 0; host < order_.num_hosts(); ++host) {
      if (host == own_host_) {
        in_order.push_back(at_row(host_sums_, host));
        continue;
      }
      const int peer = order_.rank_at(host, own_place_);
      add_message(sent, at_row(host_sums_, host), numel_of(peer) * sum_bytes, peer);
      add_message(received, at_row(host_rows_, host), numel_of(job_.rank) * sum_bytes, peer);
      in_order.push_back(at_row(host_rows_, host));
    }
    carrier_.exchange(sent, received);
    finish(in_order, sums_);
  }

  // This rank adds, for every host, what the rank of its own place there will keep.
  void sum_in_host() {
    const int num_hosts = order_.num_hosts();
    if (!received_.defined()) received_ = scratch(per_host_ * num_hosts, rows_.scalar_type());
    if (!host_sums_.defined()) host_sums_ = scratch(num_hosts, sums_);
    Messages sent, received;
    for (int place = 0; place < per_host_; ++place) {
      if (place == own_place_) continue;
      const int peer = order_.rank_at(own_host_, place);
      for (int host = 0; host < num_hosts; ++host) {
        const int theirs = order_.rank_at(host, place), ours = order_.rank_at(host, own_place_);
        add_message(sent, own_row(theirs), numel_of(theirs) * element_, peer);
        add_message(received, at_row(received_, place * num_hosts + host),
                    numel_of(ours) * element_, peer);
      }
    }
    carrier_.exchange(sent, received);
    for (int host = 0; host < num_hosts; ++host) {
      const int owner = order_.rank_at(host, own_place_);
      std::vector<const void*> rows;
      for (int place = 0; place < per_host_; ++place) {
        rows.push_back(place == own_place_ ? own_row(owner)
                                           : at_row(received_, place * num_hosts + host));
      }
      add_host(host, rows, numel_of(owner));
    }
  }

  // Any number of rows: more than one pass holds go on from the sums so far.
  void fold(RowSum sum) {
    const auto most = static_cast<size_t>(carrier_.max_rows());
    while (sum.rows.size() > most) {
      if (!carried_.defined()) carried_ = scratch(1, sums_);
      RowSum head = sum;
      head.rows = sum.rows.first(most);
      head.output = carried_.mutable_data_ptr();
      head.output_dtype = sums_;
      head.divisor = 1;
      head.addend = nullptr;
      carrier_.add(head);
      sum.start = carried_.const_data_ptr();
      sum.rows = sum.rows.subspan(most);
    }
    carrier_.add(sum);
  }

  // The rows of one host, or those of one place on each, into its sums.
  void add_host(int host, std::span<const void* const> rows, int64_t numel) {
    if (numel == 0) return;
    fold({.output = at_row(host_sums_, host),
          .output_dtype = sums_,
          .rows = rows,
          .rows_dtype = rows_.scalar_type(),
          .numel = numel,
          .op = job_.options.op});
  }

  void finish(std::span<const void* const> rows, at::ScalarType dtype) {
    const int64_t numel = numel_of(job_.rank);
    if (numel == 0) return;
    auto* output = static_cast<std::byte*>(output_.data_ptr()) +
                   first_ * static_cast<int64_t>(output_.element_size());
    fold({.output = output,
          .output_dtype = output_.scalar_type(),
          .rows = rows,
          .rows_dtype = dtype,
          .numel = numel,
          .op = job_.options.op,
          .divisor = job_.options.op == ReduceOp::average ? size_ : 1,
          .addend = adds_output_ ? output : nullptr});
  }

  SumCarrier& carrier_;
  const ExchangedSum& job_;
  const at::Tensor& rows_;
  const at::Tensor& output_;
  const bool adds_output_;
  const int size_;
  const ReduceParts parts_;
  const HostOrder order_;
  const int64_t element_;
  const at::ScalarType sums_;
  const int per_host_;  // 0: everyone sends to everyone
  int own_host_ = 0, own_place_ = 0;
  int64_t window_ = 0;  // elements of each rank's part in one turn
  int64_t first_ = 0;   // of them in this turn
  at::Tensor received_, host_sums_, host_rows_, carried_;
};

// Every replica of a slice gets all its parts.
void spread_parts(SumCarrier& carrier, const at::Tensor& slice, const ReduceParts& parts,
                  int rank) {
  const auto element = static_cast<int64_t>(slice.element_size());
  const auto part_at = [&](int part) {
    return static_cast<std::byte*>(slice.data_ptr()) + parts.begin(part) * element;
  };
  const int own = parts.part_of(rank);
  std::vector<SumCarrier::Message> sent, received;
  for (int part = 0; part < parts.num_parts; ++part) {
    if (part == own) continue;
    const int peer = part * parts.num_slices + parts.slice_of(rank);
    if (parts.numel(own) > 0) sent.push_back({part_at(own), parts.numel(own) * element, peer});
    if (parts.numel(part) > 0) {
      received.push_back({part_at(part), parts.numel(part) * element, peer});
    }
  }
  carrier.exchange(sent, received);
}

}  // namespace

void exchanged_sum(SumCarrier& carrier, const at::Tensor& shard, const at::Tensor& rows,
                   const ExchangedSum& job) {
  if (shard.numel() == 0) return;
  const ReduceParts parts(rows, static_cast<int>(job.hosts.size()));
  const bool accumulate = job.options.accumulate;
  if (parts.num_parts == 1) return Reduction(carrier, rows, shard, accumulate, job).run();

  // Old values are each rank's own: they are added after the exchange, to a result that has not
  // been rounded.
  const auto dtype = accumulate ? sum_dtype(rows.scalar_type()) : shard.scalar_type();
  const at::Tensor slice = accumulate ? carrier.scratch(shard.numel(), dtype) : shard;
  const int own = parts.part_of(job.rank);
  const at::Tensor part = slice.narrow(0, parts.begin(own), parts.numel(own));
  Reduction(carrier, rows, part, false, job).run();
  spread_parts(carrier, slice, parts, job.rank);
  if (!accumulate) return;
  const void* const row = slice.const_data_ptr();
  carrier.add({.output = shard.mutable_data_ptr(),
               .output_dtype = shard.scalar_type(),
               .rows = std::span(&row, 1),
               .rows_dtype = dtype,
               .numel = shard.numel(),
               .addend = shard.const_data_ptr()});
}

}  // namespace fullshard::comm
