"""Keeps up with the engines that our adapters are written for.

- `signatures`: the classes, functions and fields of a release, read from its source
- `touched`: the names of an engine that our adapter uses
- `record`: the releases that the adapters were tested with, in ENGINE.json
- `drift`: compares a release with the record (tools/engine_drift)
"""
