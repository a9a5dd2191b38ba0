// Fuzzes what a node does with the records that other members tell it: the feeds that it follows,
// and the answers to its lookups.
//
// The input is a script. Each step is a byte that chooses it, and the bytes that it needs. Frames
// have the header that the script's place demands, so that their rows reach the copies. Whatever
// the members say, a search finds only records of known holders and of the digests asked for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/copies.h"
#include "transfer/tcp/frames.h"

using namespace peercached;

namespace {

constexpr HolderIndex kHolders = 4;

void require(bool holds) {
  if (!holds) std::abort();
}

class Script {
 public:
  Script(const uint8_t* data, size_t size) : left_(std::as_bytes(std::span(data, size))) {}

  bool ended() const { return left_.empty(); }
  uint8_t byte() { return static_cast<uint8_t>(take(1).empty() ? std::byte{} : last_[0]); }
  std::span<const std::byte> take(size_t bytes) {
    last_ = left_.first(std::min(bytes, left_.size()));
    left_ = left_.subspan(last_.size());
    return last_;
  }

 private:
  std::span<const std::byte> left_, last_;
};

// Few digests, so that steps meet each other's.
std::array<Digest, 8> asked() {
  std::array<Digest, 8> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i].lo = all[i].hi = i;
  return all;
}

void narrow(std::vector<RecordRow>& rows) {
  for (RecordRow& row : rows) row.digest.lo = row.digest.hi = row.digest.lo % 16;
}

void follow(Copies& copies, HolderIndex holder, std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  tcp::Followed part;
  std::vector<RecordRow> rows;
  if (tcp::parse_followed(body, request, part, rows) != nullptr) return;
  narrow(rows);
  const bool has_room = (!part.anew || copies.begins(holder)) &&
                        (part.rows.empty() || copies.changes(holder, part.rows));
  if (has_room && !part.more) copies.is_up_to_date(holder, copies.asks(), Clock::now());
}

void look_up(std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  Located located{.final = true, .holders = {}, .rows = {}};
  if (tcp::parse_located(body, request, located) != nullptr) return;
  for (const RecordRow& row : located.rows) require(row.holder < located.holders.size());
}

void search(const Copies& copies, bool all) {
  const auto digests = asked();
  std::vector<RecordRow> found;
  if (all) {
    copies.find_all(digests, found);
  } else {
    copies.find(digests, found);
    require(found.size() <= digests.size() * tcp::kRowsPerDigestMax);
  }
  for (const RecordRow& row : found) {
    require(row.holder < kHolders);
    require(std::find(digests.begin(), digests.end(), row.digest) != digests.end());
    require((row.flags & kRecordWithdraw) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  Copies copies(1024, [] {});
  while (!script.ended()) {
    const uint8_t step = script.byte();
    const HolderIndex holder = script.byte() % kHolders;
    const auto digests = asked();
    switch (step % 8) {
      case 0:
      case 1:
        follow(copies, holder,
               script.take(sizeof(tcp::FollowedHead) + script.byte() % 16 * sizeof(RecordRow)));
        break;
      case 2:
        look_up(script.take(sizeof(tcp::LocatedHead) + script.byte()));
        break;
      case 3:
        copies.is_lost(holder);
        break;
      case 4:
        copies.forget(holder);
        break;
      case 5:
        copies.removed(std::span(digests).first(holder));
        break;
      case 6:
        copies.sweep(64);
        break;
      default:
        search(copies, holder % 2 == 0);
    }
    require(copies.stats().records <= copies.stats().records_max);
  }
  search(copies, true);
  return 0;
}
