"""Removals across the cluster (docs/consistency.md, "A removal").

member             carries a removal out at one member
driver             asks all members until the removal is complete
catch_up           learns at start which pages were removed while the node was away
open               the removals that this node drives
calls              calls to members about removals
replies            sums up the answers of the members that a node asks at its start
told_owners        asks each member which owners know its withdrawals
vanished_processes asks a host whether a process that vanished has ended
"""
