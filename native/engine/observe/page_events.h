// Events of pages for routers: what subscribers are told of the pages of all nodes, or of ours.
// Python numbers and sends the batches (peercached/kv_events/).
//
// Subscribers know the pages that `locate` finds: of nodes that are in the view, are not suspect,
// and have a lease. A node without these is told as cleared after kPatience, because most troubles
// end sooner.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/control/serving.h"
#include "engine/records/directory.h"
#include "engine/records/nodes.h"
#include "engine/records/publisher.h"
#include "engine/storage/storage.h"
#include "kv_events/picture.h"

namespace peercached {

class PageEvents {
 public:
  struct Parts {
    const Serving& serving;
    const NodeTable& nodes;
    Directory& directory;
    Publisher& publisher;
    Storage& storage;
  };

  // From then on, names and records reach the picture. `all`: of all nodes. Else only our pages are
  // told, but names of other nodes' pages are kept: these pages may move here.
  PageEvents(const Parts& parts, bool all);

  kv_events::Picture& picture() { return picture_; }
  kv_events::Picture::Drained drain(size_t bytes_max);
  std::vector<kv_events::Batch> snapshot();
  // Whether pages of all nodes are told. A node without the records of all cannot.
  bool tells_all() const { return all_ && !parts_.directory.records().stores_owned(); }

 private:
  void identify(std::span<const Digest> digests, std::span<kv_events::NamespaceOf> found) const;
  void scan_own();
  std::vector<kv_events::LiveNode> live() const;

  const Parts parts_;
  const bool all_;
  kv_events::Picture picture_;
};

}  // namespace peercached
