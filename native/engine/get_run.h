// One `get` on its way through the places where its pages may be. Every page ends with one status;
// what one place does not have, or cannot give in time, stays pending for the next one.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace peercached {

struct Engine::GetRun {
  Engine& engine;
  const RequestContext& context;
  std::span<PageRef> pages;
  std::span<const Digest> digests;
  std::vector<HolderIndex> failed;    // by page: who had not got it, though its record said so
  std::vector<uint8_t> unread{};      // by page: a disk that has it gave nothing; empty: none did
  Source farthest = Source::nowhere;  // that a page came from

  void from_pool(const Digest* parent);  // get.cc
  void from_disk();                      // get.cc
  // Those worth another try stay pending.
  void from_peers(Trust trust);  // get_peers.cc
  // Behind all these: misses of what is on a disk that gave nothing are its fault.
  void blame_disks();

 private:
  // A page of this request (index) and where it is.
  struct Found {
    size_t page;
    RecordRow row;
  };
  using ByHolder = std::map<HolderIndex, std::vector<Found>>;
  struct Asked;  // one holder, for some pages

  // Copies pinned pages of ours into the region: pins[k] is the index[k]-th page.
  void copy_out(std::span<const PinnedPage> pins, std::span<const size_t> index, Source source);
  void hit(Source source);
  void not_read(size_t page);  // a disk has it, and gave nothing
  // Reads what is resident, and in turns has what is `cold` promoted and reads that.
  void promote_and_read(const ByHolder& resident, ByHolder& cold, Trust trust);
  void ask(ByHolder& cold, std::deque<Asked>& asked);
  // Waits for it; what cannot be promoted now is cold again, unless that would go on for ever.
  void take_answer(Asked& asked, Trust trust, ByHolder& promoted, ByHolder& cold);
  void read(const ByHolder& found, Trust trust, Source source);
  // What was said of the page led nowhere: it stays pending if it is worth another look.
  void missed(const Found& found, PageStatus status, Trust trust);
};

}  // namespace peercached
