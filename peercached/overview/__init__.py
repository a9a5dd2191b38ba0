"""The whole cluster in one document, for dashboards and scripts.

summary.py    one node's short report about itself
gatherer.py   on a master: asks every member, at most once per second, only on request
overview.py   on any node: asks a master for its reports, and builds the document

So n nodes with open dashboards cost one call to each member per second, not n.
"""
