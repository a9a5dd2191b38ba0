"""Membership kept by masters among the nodes: heartbeats, signs of life, probes."""
