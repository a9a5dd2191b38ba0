"""The daemon's configuration: one schema, four sources, a reason for every value.

schema.py     every key: type, default, unit, range, what it does, when to change it
values.py     the forms that sizes, addresses and modes are written in
keys.py       the schema as data: names, options, environment variables
load.py       defaults < file < environment < command line, with provenance
automatic.py  the defaults that depend on the host
checks.py     combinations that cannot work
problem.py    what is wrong, and what to do
paths.py      where the sockets are
document.py   docs/configuration.md out of the schema
"""

from peercached.config.load import Effective, load
from peercached.config.problem import ConfigError, Problem
from peercached.config.schema import Config

__all__ = ["Config", "ConfigError", "Effective", "Problem", "load"]
