#include "kv_events/batch_writer.h"

#include <bit>
#include <concepts>

namespace peercached::kv_events {
namespace {

constexpr size_t kEventBytes = 200;  // of an event without its hashes, at most

// msgpack is big-endian.
template <std::unsigned_integral T>
void append_big(std::string& out, T value) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift));
}

void append_head(std::string& out, uint8_t kind, uint64_t value, int bytes) {
  out.push_back(static_cast<char>(kind));
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(value >> shift));
}

void append_unsigned(std::string& out, uint64_t value) {
  if (value < 0x80) return out.push_back(static_cast<char>(value));
  if (value <= UINT8_MAX) return append_head(out, 0xcc, value, 1);
  if (value <= UINT16_MAX) return append_head(out, 0xcd, value, 2);
  if (value <= UINT32_MAX) return append_head(out, 0xce, value, 4);
  append_head(out, 0xcf, value, 8);
}

void append_array(std::string& out, uint32_t count) {
  if (count < 16) return out.push_back(static_cast<char>(0x90 | count));
  if (count <= UINT16_MAX) return append_head(out, 0xdc, count, 2);
  append_head(out, 0xdd, count, 4);
}

void append_text(std::string& out, std::string_view text) {  // below 32 bytes
  out.push_back(static_cast<char>(0xa0 | text.size()));
  out.append(text);
}

void append_nil(std::string& out) { out.push_back(static_cast<char>(0xc0)); }

void append_name(std::string& out, const PageName& name) {
  if (name.kind <= kNameBytesMax) {
    append_head(out, 0xc4, name.kind, 1);
    out.append(reinterpret_cast<const char*>(name.bytes.data()), name.kind);
    return;
  }
  uint64_t value = 0;
  std::memcpy(&value, name.bytes.data(), sizeof value);
  if (name.kind == kSignedName && (value >> 63) != 0) return append_head(out, 0xd3, value, 8);
  append_unsigned(out, value);
}

std::string_view medium_of(Tier tier) { return tier == Tier::pool ? "CPU" : "STORAGE"; }

void append_key(std::string& out, std::string_view key, std::string_view text) {
  append_text(out, key);
  append_text(out, text);
}

}  // namespace

std::string topic_of(std::string_view node, std::string_view ns) {
  std::string topic = "kv@";
  topic.append(node).append("@").append(ns);
  return topic;
}

void BatchWriter::cleared(std::string topic) {
  Batch& batch = done_.emplace_back();
  batch.topic = std::move(topic);
  batch.events = 1;
  std::string& out = batch.payload;
  append_array(out, 2);
  append_head(out, 0xcb, std::bit_cast<uint64_t>(time_), 8);
  append_array(out, 1);
  out.push_back(static_cast<char>(0x81));
  append_key(out, "type", "AllBlocksCleared");
  bytes_ += out.size();
}

BatchWriter::Open& BatchWriter::open(const std::string& topic, bool local) {
  Open& batch = open_[topic];
  batch.local = local;
  return batch;
}

void BatchWriter::removed(const std::string& topic, bool local, Tier tier, const PageName& name) {
  Open& batch = open(topic, local);
  add(topic, batch, batch.removed[tier], name);
}

void BatchWriter::stored(const std::string& topic, bool local, Tier tier, uint32_t block_tokens,
                         const PageName& name) {
  Open& batch = open(topic, local);
  add(topic, batch, batch.stored[{tier, block_tokens}], name);
}

void BatchWriter::add(const std::string& topic, Open& batch, Hashes& hashes, const PageName& name) {
  const size_t before = hashes.packed.size();
  append_name(hashes.packed, name);
  const size_t added =
      hashes.packed.size() - before + (hashes.count == 0 ? kEventBytes : size_t{0});
  ++hashes.count;
  batch.bytes += added;
  bytes_ += added;
  if (batch.bytes >= kBatchBytes) close(topic, batch);
}

void BatchWriter::close(const std::string& topic, Open& batch) {
  Batch& done = done_.emplace_back();
  done.topic = topic;
  std::string& out = done.payload;
  out.reserve(batch.bytes + 64);
  append_array(out, 2);
  append_head(out, 0xcb, std::bit_cast<uint64_t>(time_), 8);
  append_array(out, static_cast<uint32_t>(batch.removed.size() + batch.stored.size()));
  const auto append_hashes = [&](const Hashes& hashes) {
    append_text(out, "block_hashes");
    append_array(out, hashes.count);
    out.append(hashes.packed);
    done.events += hashes.count;
  };
  const auto append_place = [&](Tier tier) {
    append_key(out, "medium", medium_of(tier));
    append_key(out, "locality", batch.local ? "LOCAL" : "REMOTE");
    append_key(out, "ownership", "peercached");
  };
  for (const auto& [tier, hashes] : batch.removed) {
    out.push_back(static_cast<char>(0x85));
    append_key(out, "type", "BlockRemoved");
    append_hashes(hashes);
    append_place(tier);
  }
  for (const auto& [place, hashes] : batch.stored) {
    out.push_back(static_cast<char>(0x8a));
    append_key(out, "type", "BlockStored");
    append_hashes(hashes);
    append_text(out, "parent_block_hash");
    append_nil(out);
    append_text(out, "token_ids");
    append_array(out, 0);
    append_text(out, "block_size");
    append_unsigned(out, place.second);
    append_text(out, "lora_id");
    append_nil(out);
    append_text(out, "lora_name");
    append_nil(out);
    append_place(place.first);
  }
  batch.bytes = 0;
  batch.removed.clear();
  batch.stored.clear();
}

void BatchWriter::end() {
  for (auto& [topic, batch] : open_) {
    if (!batch.removed.empty() || !batch.stored.empty()) close(topic, batch);
  }
  open_.clear();
}

std::vector<Batch> BatchWriter::take() {
  end();
  bytes_ = 0;
  return std::exchange(done_, {});
}

}  // namespace peercached::kv_events
