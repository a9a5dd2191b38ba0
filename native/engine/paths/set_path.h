// set: a batch goes through in pieces, so that a batch larger than the pool's free space does not
// pin it whole. It is answered when the owners of its pages know their records.
#pragma once

#include <span>

#include "engine/control/serving.h"
#include "engine/measures/latencies.h"
#include "engine/paths/set_piece.h"
#include "engine/storage/janitor.h"
#include "ipc/handler.h"
#include "kv_events/picture.h"

namespace peercached {

struct SetPath {
  const Serving& serving;  // while it does not take pages, they are answered with `draining`
  const SetPieces pieces;
  Janitor& janitor;
  kv_events::Picture* picture;  // hears of the pages' names; null: nobody is told
  Latencies& latencies;

  void set(const RequestContext& context, std::span<PageRef> pages) const;

 private:
  void refuse(SetPages& set) const;
  void store_in_pieces(SetPages& set, const Digest* parent) const;
  void store_busy(SetPages& set) const;
  void store(SetPages& set, std::span<const size_t> chosen, const Digest* parent) const;
  void wait_told(const SetPages& set) const;
};

}  // namespace peercached
