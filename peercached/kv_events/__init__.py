"""Events of pages for routers: which node has which pages, over ZMQ (docs/routers.md).

The data plane knows what to tell (native/kv_events/picture.h). This package numbers the batches
(stream.py) and sends them (sockets.py).
"""
