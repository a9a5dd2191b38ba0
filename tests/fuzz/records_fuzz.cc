// Fuzzes what a node does with the records that other members tell it: the feeds that it follows,
// the changes that they push, and the answers to its lookups.
//
// The input is a script. Each step is a byte that chooses it, and the bytes that it needs. Frames
// have the header that the script's place demands, so that their rows reach the table. A search
// must find only records of known holders and of the digests asked for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "directory/record_table.h"
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

void follow(RecordTable& table, HolderIndex holder, std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  tcp::Followed part;
  std::vector<RecordRow> rows;
  if (tcp::parse_followed(body, request, part, rows) != nullptr) return;
  narrow(rows);
  table.ask(holder, Clock::now());
  table.take(holder, part);
}

void push(RecordTable& table, HolderIndex holder, std::span<const std::byte> body) {
  tcp::PushHead head;
  std::vector<RecordRow> rows;
  if (tcp::parse_push(body, head, rows) != nullptr) return;
  narrow(rows);
  const FeedPart part{.rows = rows, .from = head.from, .to = head.to};
  const uint64_t position = table.push(holder, part);
  const bool fits = part.to - part.from == rows.size() && position >= part.from;
  require(position == 0 || !fits || position >= part.to);
}

void look_up(std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  Located located{.final = true, .holders = {}, .rows = {}};
  if (tcp::parse_located(body, request, located) != nullptr) return;
  for (const RecordRow& row : located.rows) require(row.holder < located.holders.size());
}

void search(const RecordTable& table, bool all) {
  const auto digests = asked();
  std::vector<RecordRow> found;
  if (all) {
    table.find_all(digests, found);
  } else {
    table.find(digests, found);
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
  RecordTable table(1024, [] {});
  while (!script.ended()) {
    const uint8_t step = script.byte();
    const HolderIndex holder = script.byte() % kHolders;
    switch (step % 8) {
      case 0:
        follow(table, holder,
               script.take(sizeof(tcp::FollowedHead) + script.byte() % 16 * sizeof(RecordRow)));
        break;
      case 1:
        push(table, holder,
             script.take(sizeof(tcp::PushHead) + script.byte() % 16 * sizeof(RecordRow)));
        break;
      case 2:
        look_up(script.take(sizeof(tcp::LocatedHead) + script.byte()));
        break;
      case 3:
        table.is_lost(holder);
        break;
      case 4:
        table.forget(holder);
        break;
      case 5:
        table.sweep(64);
        if (holder != 0) {
          table.store_only([holder](const Digest& digest) { return digest.lo % 4 != holder; },
                           holder);
        }
        break;
      default:
        search(table, holder % 2 == 0);
    }
    require(table.stats().records <= table.stats().records_max);
  }
  search(table, true);
  return 0;
}
