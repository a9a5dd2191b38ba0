#include "engine/paths/get_peers.h"

#include <algorithm>
#include <list>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

namespace peercached {

struct GetPeers::Attempts {
  const GetPeers& places;
  GetPages& get;
  Turns turns{places.peers, get};
  std::list<Apart> apart{};

  // Pages worth another try stay pending.
  void look_up_and_read();
  // The second lookup, for pages that are worth it.
  void try_again() {
    places.here.from_pool(get);
    get.trust = Trust::nothing;
    look_up_and_read();
  }
  void wait_for_apart();

 private:
  // Takes out the holders that give their pages in several steps, so that nobody waits for them.
  void set_apart(FoundPages& found);
};

struct GetPeers::Apart {
  Apart(const Attempts& whole, HolderIndex holder, FoundPages& all)
      : context(whole.get.context), get(whole.get.part(context)), attempts{whole.places, get} {
    if (context.trace != nullptr) context.trace = &trace;
    add(whole.get, all.resident[holder], found.resident);
    add(whole.get, all.on_disk[holder], found.on_disk);
    get.pages = pages;
    get.digests = digests;
    get.failed.assign(pages.size(), kNoHolder);
    attempts.turns.slices.crowded = whole.turns.slices.crowded;
  }

  void read() {
    attempts.turns.read(found);
    if (get.trust != Trust::nothing) attempts.try_again();
    attempts.wait_for_apart();
  }

  // Waits for the thread.
  void give(GetPages& whole) {
    thread.join();
    for (size_t k = 0; k < pages.size(); ++k) {
      whole.pages[of_whole[k]].status = pages[k].status;
      if (!get.unread.empty() && get.unread[k] != 0) whole.not_read(of_whole[k]);
    }
    whole.farthest = std::max(whole.farthest, get.farthest);
    for (size_t s = 0; s < get.looked.found.size(); ++s)
      whole.looked.found[s] += get.looked.found[s];
    for (const Trace::Step& step : trace.steps) whole.context.trace->add(step);
  }

  Trace trace;
  RequestContext context;
  FoundPages found;
  std::vector<size_t> of_whole;  // page k here is that page there
  std::vector<PageRef> pages;
  std::vector<Digest> digests;
  GetPages get;
  Attempts attempts;
  std::jthread thread;

 private:
  void add(const GetPages& whole, std::span<const FoundPage> some, ByHolder& to) {
    for (const FoundPage& one : some) {
      to[one.row.holder].push_back({pages.size(), one.row});
      of_whole.push_back(one.page);
      pages.push_back(whole.pages[one.page]);
      digests.push_back(whole.digests[one.page]);
    }
  }
};

void GetPeers::from_peers(GetPages& get) const {
  Attempts attempts{*this, get};
  attempts.look_up_and_read();
  attempts.try_again();
  attempts.wait_for_apart();
}

void GetPeers::Attempts::look_up_and_read() {
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  std::vector<HolderIndex> failed_at;
  for (size_t i = 0; i < get.pages.size(); ++i) {
    if (get.pages[i].status != PageStatus::pending) continue;
    wanted.push_back(get.digests[i]);
    index.push_back(i);
    failed_at.push_back(get.failed[i]);
  }
  if (wanted.empty()) return;
  std::vector<RecordRow> rows(wanted.size());
  std::vector<PageStatus> why(wanted.size());
  places.peers.locator.locate(wanted, failed_at, get.trust, get.context.deadline, rows, why,
                              get.context.trace);

  FoundPages found;
  for (size_t k = 0; k < wanted.size(); ++k) {
    PageRef& page = get.pages[index[k]];
    if (rows[k].holder != kNoHolder) {
      turns.sort_in({index[k], rows[k]}, found);
    } else {
      // Stale: our own record. The page has come to our pool since we looked, or is about to go.
      const bool again =
          why[k] == PageStatus::stale && get.trust != Trust::nothing && !page.of_device;
      page.status = again ? PageStatus::pending : why[k];
    }
  }
  set_apart(found);
  turns.read(found);
}

void GetPeers::Attempts::set_apart(FoundPages& found) {
  std::set<HolderIndex> left;
  for (const ByHolder* some : {&found.resident, &found.on_disk})
    for (const auto& [holder, pages] : *some) left.insert(holder);
  const std::set<HolderIndex> holders = left;
  for (const HolderIndex holder : holders) {
    if (left.size() == 1) return;  // nobody else would wait for it
    const bool in_steps = found.on_disk.contains(holder) ||
                          turns.slices.turn_bytes(holder, found.resident[holder]) != 0;
    if (!in_steps) continue;
    if (get.shared.threads_left.fetch_sub(1) <= 0) return;
    Apart& one = apart.emplace_back(*this, holder, found);
    try {
      one.thread = std::jthread([&one] { one.read(); });
    } catch (const std::system_error&) {
      apart.pop_back();  // no thread available: the others wait for it
      return;
    }
    for (ByHolder* some : {&found.resident, &found.on_disk}) {
      // Its thread decides on the final status.
      for (const FoundPage& page : (*some)[holder])
        get.pages[page.page].status = PageStatus::deadline;
      some->erase(holder);
    }
    left.erase(holder);
  }
}

void GetPeers::Attempts::wait_for_apart() {
  for (Apart& one : apart) one.give(get);
}

}  // namespace peercached
