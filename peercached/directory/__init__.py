"""The directory of pages and their holders: who owns which records, and namespace epochs.

    placement.py    a view -> holder indices and ring of the engine
    ring.py         the positions of a view's owners
    owner_choice.py which members own records
    followers.py    what other members have of our records
    ring_report.py  the document of `peercachectl ring`
    epochs.py       namespace epochs, as heartbeats carry them
    layout.py       the packed forms

The records themselves are in native code (native/directory/). Clocks and sockets are in
peercached/peer/.
"""
