"""Names of environment variables."""

ENVIRONMENT_PREFIX = "PEERCACHED_"  # of the variable of each key
FILE_VARIABLE = "PEERCACHED_CONFIG"  # the configuration file
