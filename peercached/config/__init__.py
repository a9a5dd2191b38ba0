"""The daemon's configuration: one schema, four sources, and the source of every value.

schema.py     every key: type, default, unit, range, purpose, when to change it
values.py     the written forms of sizes, addresses and modes
keys.py       the schema as data: names, options, environment variables
load.py       defaults < file < environment < command line, with each value's source
automatic.py  the defaults that depend on the host
own_host.py   the address of this host that peers are told
checks.py     impossible combinations of values
problem.py    one problem and its remedy
shared.py     settings that must be equal on all nodes
paths.py      the default paths of the sockets
document.py   generates docs/configuration.md from the schema
"""

from peercached.config.load import Effective, load
from peercached.config.problem import ConfigError, Problem
from peercached.config.schema import Config

__all__ = ["Config", "ConfigError", "Effective", "Problem", "load"]
