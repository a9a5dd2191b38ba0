// READs pages of a get from the pools of peers. Others learn from these READs: how quick each
// holder is, which pages are hot, and which ones are used without their holder noticing.
#pragma once

#include "engine/handover/adopter.h"
#include "engine/handover/hot_reads.h"
#include "engine/measures/load_times.h"
#include "engine/paths/get_pages.h"
#include "engine/paths/slices.h"
#include "engine/paths/used_pages.h"
#include "engine/records/holder_speeds.h"
#include "engine/records/nodes.h"
#include "transfer/transfer.h"
#include "transfer/verify.h"

namespace peercached {

struct PeerReads {
  NodeTable& nodes;
  TransferEngine& transfer;
  VerifyingSink& verifier;
  HolderSpeeds& speeds;
  LoadTimes& times;
  HotReads& hot;
  UsedPages& used;
  Adopter& adopter;
  device::Devices* devices;  // null: no worker has memory of one

  // `source`: where the pages were before this get.
  void read(GetPages& get, Slices& slices, GetLoads& loads, const ByHolder& found,
            Source source) const;

 private:
  struct Batches;
  Batches batches_of(const GetPages& get, const ByHolder& found) const;
  // Pages of a device have come to our own memory first.
  void copy_to_device(GetPages& get, Batches& sent) const;
  void transfer_all(GetPages& get, Slices& slices, GetLoads& loads, Batches& sent) const;
  static void settle(GetPages& get, const Batches& sent, Source source);
  void note_hot(const GetPages& get, const Batches& sent) const;
  void store_replicas(const GetPages& get, Slices& slices, const Batches& sent) const;
  void note_used(const Batches& sent) const;
};

}  // namespace peercached
