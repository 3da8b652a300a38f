// Who holds how many bytes, and why. Every buffer of the engine is entered here; the totals are
// what reports and tests read.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace fullshard {

enum class Purpose { parameters, gradients, master, optimizer, activations, workspace };
inline constexpr int kNumPurposes = 6;

// A place for bytes. On a CPU device both are the same memory.
enum class Tier { device, host };
inline constexpr int kNumTiers = 2;

std::string_view name_of(Purpose purpose);
std::string_view name_of(Tier tier);

// Thread-safe. One per sharded model.
class Ledger {
 public:
  void hold(Purpose purpose, Tier tier, int64_t bytes);
  void drop(Purpose purpose, Tier tier, int64_t bytes);

  int64_t held(Purpose purpose, Tier tier = Tier::device) const;
  int64_t peak(Purpose purpose, Tier tier = Tier::device) const;
  // Of all purposes together.
  int64_t held_total(Tier tier = Tier::device) const;
  int64_t peak_total(Tier tier = Tier::device) const;
  void reset_peaks();

  // One line per purpose: name, held, peak.
  std::string table() const;

 private:
  struct Account {
    int64_t held = 0;
    int64_t peak = 0;
    void change(int64_t bytes);
  };
  const Account& account(Purpose purpose, Tier tier) const;

  mutable std::mutex mutex_;
  std::array<std::array<Account, kNumPurposes>, kNumTiers> accounts_{};
  std::array<Account, kNumTiers> totals_{};
};

}  // namespace fullshard
