"""Pages move from one node's pool to another's.

handover         puts the parts together
intake           takes sets, or refuses them
drain            a node hands its warmest pages to peers and leaves
spill            a full node offers the pages that it would evict to peers with room or older pages
push             pages go to other nodes as soon as they are set
replicas         pages that are often read here are copied from other nodes
move             hands single pages to a node that an operator named
giver            offers pages to one peer after the other, and drops our copies (spill and push)
adopts           the side of a peer that takes pages
parts            the pages of one offer, and the call that offers them
takers           chooses the peers to ask, and their order
report           progress and outcome of a drain, for people
"""
