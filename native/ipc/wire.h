// The frames between worker and daemon: docs/protocol.md, "IPC". Little-endian.
//
//   request:  RequestHeader, then body_bytes of body
//   reply:    ReplyHeader, then body_bytes of body
//
// Page data comes in columns (one array per field), not rows: a Python client packs a column of any
// length with one call.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace peercached::ipc {

static_assert(std::endian::native == std::endian::little, "frames are read in place");

inline constexpr uint32_t kProtocolVersion = 1;

inline constexpr uint32_t kBodyBytesMax = 64u << 20;
inline constexpr uint32_t kPagesMax = 65536;
inline constexpr uint32_t kNamespaceBytesMax = 1024;
inline constexpr uint32_t kNameBytesMax = 128;
inline constexpr uint32_t kEnvelopeBytesMax = 256u << 10;  // of hints

enum class Op : uint16_t {
  hello = 1,
  ping = 2,
  register_region = 3,
  unregister_region = 4,
  set = 5,
  get = 6,
  exists = 7,
  remove = 8,
  clear = 9,
  stats = 10,
  pin = 11,
  register_device = 12,
  hint = 13,
};
inline constexpr uint16_t kReplyBit = 0x8000;
inline constexpr uint16_t kStageBit = 0x4000;  // not the reply yet: see kFlagStages

// Clients tell the time of these calls: RequestHeader::took.
enum class TookOp : uint8_t { none, set, get, exists };

enum RequestFlags : uint16_t {
  kFlagParent = 1,    // all with pages: a parent key follows the columns
  kFlagBitmap = 2,    // EXISTS: one byte per key in the reply
  kFlagHold = 4,      // EXISTS: the body ends with how long to keep present pages, u32 ms
  kFlagPage = 8,      // EXISTS: then come the tokens and the keys of a page, u16 each
  kFlagLengths = 16,  // EXISTS: the reply has the length of each key's page, u32
  kFlagSpan = 32,     // GET: the body ends with the caller's span (CallerSpan, common/trace.h)
  kFlagPrefix = 64,   // PIN: only the keys before the first one that is nowhere
  kFlagHere = 128,    // PIN: bring the pages to this node, and pin them here
                      // EXISTS: of the pages in this node's pool, which the client has used
  kFlagLayout = 256,  // SET, GET: pages of a device, see Rows
  kFlagStages = 512,  // GET with a layout: tell of each stage. Frames with kStageBit come before
                      // the reply: all pages have the Rows of the stages below `value`.
  kFlagWait =
      1024,  // EXISTS: then come how long to wait, u32 ms, and for how many leading keys, u32
  kFlagNames = 2048,     // SET: the body ends with the pages' names in events (common/page_name.h):
                         // the bytes of all, a kind for each, u8, and the tokens of a block, u32
  kFlagForecast = 4096,  // EXISTS: the body ends with ForecastNews. The reply ends with a column of
                         // p50 and one of p90: us to load the pages up to each key, u32
  kFlagCold = 8192,      // EXISTS with kFlagForecast: then comes a column of u8, 1 for a page that
                         // only the object store has
};

// In the number of keys to wait for: the same keys were asked for just before, without a wait. So
// the statistics of hits count only the pages that came since.
inline constexpr uint32_t kWaitAgain = 1u << 31;

// Abilities of a client or daemon beyond the first version of this protocol. A daemon closes the
// connection after an unknown flag, and after an unknown op with keys. So a client uses these only
// if both HELLOs have named their feature.
enum Features : uint32_t {
  kFeatureSpan = 1,        // kFlagSpan
  kFeaturePins = 2,        // Op::pin
  kFeatureTook = 4,        // RequestHeader::took
  kFeatureHere = 8,        // kFlagHere in EXISTS
  kFeatureDevice = 16,     // Op::register_device, kFlagLayout and kFlagStages
  kFeatureWait = 32,       // kFlagWait
  kFeatureNames = 64,      // kFlagNames; of a daemon that tells events of pages
  kFeatureForecast = 128,  // kFlagForecast
  kFeatureHint = 256,      // Op::hint
  kFeatureCold = 512,      // kFlagCold
};
inline constexpr uint32_t kFeatures = kFeatureSpan | kFeaturePins | kFeatureTook | kFeatureHere |
                                      kFeatureDevice | kFeatureWait | kFeatureNames |
                                      kFeatureForecast | kFeatureHint | kFeatureCold;

enum class ErrorCode : uint16_t {
  none = 0,
  bad_frame = 1,      // lengths do not add up; the connection is closed
  bad_version = 2,    // HELLO: another protocol version; closed
  not_attached = 3,   // any op before HELLO; closed
  no_attachment = 4,  // HELLO: this user has no such token; closed. Attach anew
  bad_value = 5,      // well formed, but an invalid value; the connection goes on
  limit = 6,          // a limit of the daemon is reached
  unknown_op = 7,     // the connection goes on
  failed = 8,         // the daemon could not do it; the text says why
  forbidden = 9,      // this user may not be a worker here; closed
};

// Whether the daemon closes the connection after this error: the stream or the peer can no longer
// be trusted.
constexpr bool closes_connection(ErrorCode error) {
  return error == ErrorCode::bad_frame || error == ErrorCode::bad_version ||
         error == ErrorCode::not_attached || error == ErrorCode::no_attachment ||
         error == ErrorCode::forbidden;
}

using Token = std::array<uint8_t, 16>;  // of an attachment

struct RequestHeader {
  uint32_t body_bytes = 0;
  uint16_t op = 0;
  uint16_t flags = 0;
  uint32_t request_id = 0;
  uint32_t count = 0;
  uint32_t deadline_ms = 0;
  // How long an earlier call of the client took: its TookOp in the low 2 bits, then us. 0: none.
  uint32_t took = 0;
};
static_assert(sizeof(RequestHeader) == 24);

constexpr TookOp took_op(const RequestHeader& header) {
  return static_cast<TookOp>(header.took & 3);
}

struct ReplyHeader {
  uint32_t body_bytes = 0;
  uint16_t op = 0;  // of the request, with kReplyBit
  uint16_t error = 0;
  uint32_t request_id = 0;
  uint32_t count = 0;
  uint32_t value = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(ReplyHeader) == 24);

// Body of REGISTER_DEVICE; the fields are those of device::Handle.
struct RegisterDevice {
  uint64_t bytes = 0;
  uint32_t kind = 0;
  uint32_t reserved = 0;  // 0
  // Random: the file cannot tell allocations apart, as all of a GPU may be one device node.
  std::array<uint64_t, 2> identity{};
  std::array<uint8_t, 16> device{};
  std::array<uint8_t, 64> opaque{};
};
static_assert(sizeof(RegisterDevice) == 112);

// With kFlagLayout pages lie as layouts say. The body ends with the Rows of all layouts, the number
// of each layout's Rows, u32, and the number of layouts, u32. The column of regions has one for
// each Rows. The column of offsets has each page's number, and its layout in the upper 32 bits.
// Rows must fill a page: each byte of it once.
struct Rows {
  uint64_t at = 0;           // of the first row of page 0, in the region
  uint64_t page_stride = 0;  // from a page to the next one, in the region
  uint64_t row_pitch = 0;    // from a row to the next one, in the region
  uint32_t row_bytes = 0;
  uint32_t rows = 0;
  uint32_t page_at = 0;     // of the first row, in the page
  uint32_t page_pitch = 0;  // from a row to the next one, in the page
  uint32_t stage = 0;       // below kRowsMax; gets copy the lowest first
  uint32_t reserved = 0;    // 0
};
static_assert(sizeof(Rows) == 48);
inline constexpr uint32_t kRowsMax = 4096;         // of all layouts of a request
inline constexpr uint32_t kRowsOfPageMax = 65536;  // rows of a page of each layout, together

// Of a worker that computes pages where loading them would take longer: sums since its last word.
struct ForecastNews {
  uint32_t cut_pages = 0;       // found, and not loaded
  uint32_t given_up_pages = 0;  // their load took far longer than forecast
  uint64_t cut_us = 0;          // forecast for the pages that were cut
  uint64_t computed_us = 0;     // to compute these
};
static_assert(sizeof(ForecastNews) == 24);

struct HelloHead {  // then namespace bytes, then name bytes
  uint32_t protocol_version = 0;
  uint32_t features = 0;  // of the client
  Token token{};          // zeros: a new attachment
  uint32_t namespace_bytes = 0;
  uint32_t name_bytes = 0;
};
static_assert(sizeof(HelloHead) == 32);

// Then version_bytes of the daemon's version. Then the daemon's features, u32, unless the client's
// are 0.
struct HelloReply {
  uint32_t protocol_version = 0;
  uint32_t version_bytes = 0;
  Token token{};
  uint64_t incarnation = 0;
  uint32_t pages_max = 0;
  uint32_t body_bytes_max = 0;
  uint32_t deadline_ms_max = 0;
  uint32_t regions_max = 0;
};
static_assert(sizeof(HelloReply) == 48);

}  // namespace peercached::ipc
