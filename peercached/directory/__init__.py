"""Who has which page: rings, record streams and lookups, as plain state machines.

    placement.py  a view -> holder indices and ring of the engine, and the rings before it
    publisher.py  a batch of records -> our shard and the owners' streams -> the answer
    stream.py     HolderStream: our records on their way to one owner, and the resync
    owner.py      OwnerSide: the other end, for all holders
    local.py      our records in our own shard
    refusals.py   when to try again what a full shard refused
    lookup.py     digests -> owners in parallel -> records, with fall-through
    ring_report.py  what `peercachectl ring` shows
    epochs.py     namespace epochs, as heartbeats carry them
    layout.py     the packed forms

None of them loops over pages: packed bytes go from native code to the wire and back. None
has a clock or a socket; peercached/peer/ has those.
"""
