#include "pool/page_note.h"

#include "common/copy.h"

namespace peercached {

namespace {
uint64_t check_of(const PageNote& note) { return checksum(&note, offsetof(PageNote, check)); }
}  // namespace

void seal(PageNote& note) { note.check = check_of(note); }
bool sealed(const PageNote& note) { return note.check == check_of(note); }

}  // namespace peercached
