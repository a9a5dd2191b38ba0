"""A node hands its warmest pages to peers and leaves.

drain            the side of the node that leaves
adopts           the side of a peer that takes pages
takers           which peers are asked, in which order
report           progress and outcome, for people
"""
