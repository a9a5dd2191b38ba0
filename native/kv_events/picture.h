// The pages of each node, in its pool or on its disk: as they are, and as subscribers have been
// told. drain() tells the difference.
//
//   records of holders ──▶ changed()  ┐
//   sets of workers    ──▶ named()    ├──▶ page: name, holdings ──▶ drain() ──▶ batches
//   names from holders ──▶ answered() ┘              │
//                                                    └──▶ snapshot(): all that has been told
//
// A change only marks its page. So a page that changes often is told once per drain, and there is
// no queue that could be full. A page waits untold until its name is known: a worker gave it at
// `set`, the node that has it is asked, or that node has none either. Then its digest is the name,
// until somebody gives one.
//
// A holder has a slot from its first record until its records are void. The slot of a holder that
// comes back is a new one, so old and new pages never mix.
//
// Rows of one holder must come in the order of its log. Has no socket, no thread and no clock.
// Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/page_name.h"
#include "common/types.h"
#include "kv_events/batch_writer.h"

namespace peercached::kv_events {

inline constexpr size_t kNamesPerQuestion = 4096;

// A page's namespace. An empty id: unknown.
struct NamespaceOf {
  Digest id;
  uint64_t epoch = 0;
  std::string text;  // its name; empty: unknown
};

// A node with pages that may be found now.
struct LiveNode {
  HolderIndex holder = kNoHolder;
  std::string id;
};

struct NameQuestion {
  HolderIndex holder = kNoHolder;
  std::vector<Digest> digests;
};

struct PictureStats {
  uint64_t pages = 0;                     // that we know of, also those not told
  uint64_t told = 0;                      // pages of nodes that subscribers know of now
  uint64_t stored = 0, removed = 0;       // events so far, one per hash
  uint64_t cleared = 0;                   // all pages of a node and namespace
  uint64_t by_digest = 0;                 // pages that were told by their digest, so far
  uint64_t names_asked = 0, unnamed = 0;  // peers were asked for names of pages; nobody knew
};

class Picture {
 public:
  // Finds the namespaces of pages that are here, by place. Those of pages that are not stay empty.
  using Identify = std::function<void(std::span<const Digest> digests, std::span<NamespaceOf> out)>;

  explicit Picture(Identify identify);

  // --- what happens
  // A worker sets these pages. Call it before their records come. `digests`: zeros for pages that
  // are not set.
  void named(const NamespaceOf& ns, std::span<const Digest> digests, const GivenNames& names);
  void changed(HolderIndex holder, std::span<const RecordRow> rows);
  // Its records are void. Later ones count.
  void forget(HolderIndex holder);
  // The namespace was cleared: its pages of earlier epochs are found no more.
  void epoch_raised(const Digest& namespace_id, uint64_t epoch);
  // Between them come the records of our own pages, with the generations that they had before.
  void begin_scan();
  void end_scan();

  // --- telling; one thread at a time
  struct Drained {
    std::vector<Batch> batches;
    bool more = false;  // there is more to tell
  };
  // `live`: nodes with pages that may be found. A node that is missing there for `patience` is told
  // as cleared. Stops soon after `bytes_max`.
  Drained drain(std::span<const LiveNode> live, TimePoint now, double unix_time, size_t bytes_max,
                Clock::duration patience);
  // All that has been told. First comes a batch of topic "kv@": nothing counts that was told
  // before. Then everything of each node is cleared, and then comes what it has.
  std::vector<Batch> snapshot(double unix_time);

  // --- names of other nodes' pages
  // At most one question per holder at a time.
  std::vector<NameQuestion> questions();
  // Throws std::invalid_argument if the answer is no answer to that many digests.
  void answered(HolderIndex holder, std::span<const Digest> asked,
                std::span<const std::byte> answer);
  // It could not be asked: it is asked again.
  void unanswered(HolderIndex holder, std::span<const Digest> asked);
  // Our answer to such a question.
  std::vector<std::byte> names_of(std::span<const Digest> digests) const;

  PictureStats stats() const;

 private:
  static constexpr size_t kShards = 64;
  // Names of pages that no node is known to have, per shard. They wait for the page's record, or
  // for a node that the page moves to.
  static constexpr size_t kUnheldMax = 4096;
  static constexpr size_t kNamespacesMax = 65'536;
  using SlotNumber = uint16_t;
  using NamespaceNumber = uint32_t;  // 0: unknown

  struct Holding {
    Generation generation = 0;
    SlotNumber slot = 0;
    Tier tier = Tier::none;
    Tier told = Tier::none;
    bool nameless = false;  // it was asked, and did not know the page's name
  };
  // Of a page that was told by its digest. The next drain tells it by this name.
  struct LaterName {
    PageName name{};
    uint16_t block_tokens = 0;
    NamespaceNumber ns = 0;
    uint64_t epoch = 0;
  };
  struct Page {
    PageName name{};
    uint16_t block_tokens = 0;
    NamespaceNumber ns = 0;
    uint64_t epoch = 0;
    bool named = false;   // `name` and `ns` are what is told
    bool asking = false;  // somebody looks for its name
    bool dirty = false;
    bool unheld = false;  // in Shard::unheld
    std::vector<Holding> holdings{};

    bool told() const {
      for (const Holding& one : holdings)
        if (one.told != Tier::none) return true;
      return false;
    }
  };
  using Pages = std::unordered_map<Digest, Page, DigestHash>;
  struct Shard {
    mutable std::mutex mutex;
    Pages pages;
    std::vector<Digest> dirty;
    std::unordered_map<Digest, LaterName, DigestHash> later_names;  // of dirty pages
    std::deque<Digest> unheld;
  };
  // The tellers' half is used under tell_mutex_ only.
  struct Slot {
    HolderIndex holder = kNoHolder;
    bool used = false;
    bool dead = false;  // under slots_mutex_, like the two above
    bool tellable = false;
    std::string node{};
    TimePoint missing_since{};
    bool missing = false;
    std::unordered_map<NamespaceNumber, uint64_t> told{};
    std::vector<Digest> to_ask{};
    bool asking = false;
  };
  struct NamespaceInfo {
    Digest id;
    uint64_t epoch = 0;  // pages of lower ones are void
    std::string text;
    std::string told_as;  // its part of topics
    bool stale = false;   // it was cleared, or has got its text
  };
  struct Sweep;

  Shard& shard_of(const Digest& digest) { return shards_[digest.lo % kShards]; }
  const Shard& shard_of(const Digest& digest) const { return shards_[digest.lo % kShards]; }
  SlotNumber slot_of(HolderIndex holder);
  NamespaceNumber number_of(const NamespaceOf& ns);
  NamespaceInfo info_of(NamespaceNumber number) const;
  void mark(Shard& shard, const Digest& digest, Page& page);
  // Requires the shard's mutex.
  void change(Shard& shard, SlotNumber slot, const RecordRow& row);
  void keep_unheld(Shard& shard, const Digest& digest, Page& page);
  void drop_if_void(Shard& shard, Pages::iterator at);
  // From this holder's answer. Ourselves: nobody else can be asked.
  void learn(const Digest& digest, const NamespaceOf& ns, const PageName& name,
             uint16_t block_tokens, HolderIndex holder);
  void stop_asking(HolderIndex holder);
  // A holder was not asked, or did not answer. The next drain asks whoever has the pages then.
  void ask_others(std::span<const Digest> digests);

  // Require tell_mutex_.
  void look_at_slots(std::span<const LiveNode> live, TimePoint now, Clock::duration patience,
                     Sweep& sweep);
  void look_at_namespaces(Sweep& sweep);
  void sweep_all(Sweep& sweep);
  bool tell_dirty(Shard& shard, size_t bytes_max);  // false: it stopped at bytes_max
  void identify_own();
  // These require the page's shard's mutex as well.
  void tell(const Digest& digest, Page& page);
  void rename(const Digest& digest, Page& page, const LaterName& later);
  void tell_removed(const Digest& digest, const Page& page, const Holding& holding);
  void tell_stored(const Digest& digest, const Page& page, SlotNumber slot, Tier tier);
  void set_told(Page& page, Holding& holding, Tier tier);
  void ask_for(const Digest& digest, Page& page);
  const std::string& topic(SlotNumber slot, NamespaceNumber ns);
  bool is_void(const Page& page);

  const Identify identify_;
  std::array<Shard, kShards> shards_;

  mutable std::mutex slots_mutex_;
  std::array<std::atomic<SlotNumber>, kNodesMax> slot_by_holder_{};
  std::deque<Slot> slots_{1};  // number 0 is unused

  mutable std::mutex namespaces_mutex_;
  std::map<Digest, NamespaceNumber> namespace_numbers_;
  std::deque<NamespaceInfo> namespaces_{1};
  std::atomic<bool> any_stale_{false};

  std::atomic<bool> scanning_{false};
  std::mutex tombs_mutex_;
  std::vector<Digest> tombs_;  // pages of ours that are gone, kept until the scan ends

  std::mutex tell_mutex_;
  BatchWriter writer_;
  std::vector<Slot*> slot_at_;  // of slots_, as of the last drain
  std::vector<Digest> own_unnamed_;
  std::unordered_map<uint64_t, std::string> topics_;
  std::vector<NamespaceInfo> seen_;  // a copy of namespaces_, for one drain
  size_t next_shard_ = 0;
  struct {
    std::atomic<uint64_t> told{0}, stored{0}, removed{0}, cleared{0}, by_digest{0}, names_asked{0},
        unnamed{0};
  } counts_;
};

}  // namespace peercached::kv_events
