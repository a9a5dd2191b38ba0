"""The directory of pages and their holders: rings, record streams and lookups, as state machines.

    placement.py  a view -> holder indices and ring of the engine; also keeps former rings
    publisher.py  a batch of records -> our shard and the owners' streams
    pending.py    batches that wait for their owners' acknowledgements
    stream.py     HolderStream: sends our records to one owner, with resync
    owner.py      OwnerSide: the other end, for all holders
    local.py      our records in our own shard
    refusals.py   backoff for records that a full shard refused
    lookup.py     digests -> owners in parallel -> records, with fall-through
    ring_report.py  the document of `peercachectl ring`
    epochs.py     namespace epochs, as heartbeats carry them
    layout.py     the packed forms

None of them loops over pages: packed bytes go from native code to the wire and back. Clocks and
sockets are in peercached/peer/.
"""
