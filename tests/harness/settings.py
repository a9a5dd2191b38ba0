"""Settings that never change."""

from peercached.config import Config, Effective
from peercached.config.keys import KEYS
from peercached.service.settings import Settings


def fixed(config: Config) -> Settings:
    effective = Effective(config, dict.fromkeys(KEYS, "default"))
    return Settings(effective, lambda: effective)
