"""The whole cluster in one document, for dashboards and scripts.

summary.py    what a node says of itself, short
gatherer.py   at a master: asks every member, at most once a second, only while somebody looks
overview.py   at any node: asks a master for what it gathered; the document

So n nodes with open dashboards cost one call to each member a second, not n.
"""
