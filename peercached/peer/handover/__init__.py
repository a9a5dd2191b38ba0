"""Pages move from one node's pool to another's.

drain            a node hands its warmest pages to peers and leaves
spill            a full node offers the pages that it would evict to peers with room or older pages
adopts           the side of a peer that takes pages
parts            what is offered at a time, and the call that offers it
takers           which peers are asked, in which order
report           progress and outcome of a drain, for people
"""
