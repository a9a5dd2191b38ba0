"""What happened in the cluster and to this node, as this node saw it. In memory, for a day.

event_log    the last events, oldest first, bounded
departures   nodes that left the view, and why; follows views
findings     health findings that begin and end
"""
