"""Removals across the cluster (docs/consistency.md, "A removal").

member           what a member does when it is told of a removal
driver           tells all members, again and again, until the removal is complete
catch_up         learns at start what was removed meanwhile
told             which members have told which others
ended            asks a host whether a process of it has ended
"""
