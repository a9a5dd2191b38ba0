"""Published workloads of other systems, on real daemons: `make bench-shapes`.

A shape is a module with a SHAPE. Engines are stand-ins (stand_in.py).
"""
