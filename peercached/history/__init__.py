"""Events of the cluster and of this node, as this node saw them. For a day, over restarts.

event_log    the last events, oldest first, bounded
departures   nodes that left the view, and why; follows views
findings     health findings that begin and end
curves       the last hour in numbers; ends with the daemon
keeper       writes events and departures to disk
store        the file in state_dir
"""
