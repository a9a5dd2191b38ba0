"""Parses and checks written values. Functions raise ValueError with the text "what; remedy"."""

from __future__ import annotations

import grp
import ipaddress
import math
import pwd
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

SIZE_FORMS = "plain bytes (1073741824) or a number with a unit of 1024s (512MiB, 8Gi, 1.5T)"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgtp])(?:ib?|b)?|b)?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

_HOST_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
HEADS_MAX = 16
DEVICES_MAX = 16
_DEVICE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})(?::([0-9]{1,3}))?")

_FAULTS = (
    *("delay", "drop", "truncate", "corrupt", "blind", "reset", "hang"),
    *("disk_write_eio", "disk_write_short", "disk_no_space", "disk_sync_eio"),
    *("disk_read_eio", "disk_read_corrupt", "disk_stall", "disk_read_stall", "disk_write_stall"),
)
_FAULT_NUMBERS = ("seed", "delay_us_max", "disk_stall_ms")


def parse_size(value: Any) -> int:
    """A size in bytes. Units are powers of 1024: `gb`, `GiB`, `Gi` and `g` mean the same."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"is not a size; give {SIZE_FORMS}")
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"is not a size; give {SIZE_FORMS}")
    unit = (found[2] or "").lower()
    # Use integers, not floats: 8388607.9 TiB must not be rounded.
    whole, _, fraction = found[1].partition(".")
    scaled = int(whole + fraction) << 10 * _POWER[unit]
    divisor: int = 10 ** len(fraction)
    size, rest = divmod(scaled, divisor)
    if rest and not unit:
        raise ValueError("is not a whole number of bytes; add a unit, or drop the fraction")
    return size


def format_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads back as the same number."""
    for unit, power in (("PiB", 5), ("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power}{unit}"
    return str(size_bytes)


def no_bool(value: Any) -> Any:
    """Refuses booleans: `vnodes = true` is a mistake, not 1."""
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number; give a number")
    return value


def finite(value: float) -> float:
    """Refuses nan and inf."""
    if not math.isfinite(value):
        raise ValueError("is not a finite number; give seconds, such as 1.5")
    return value


def split_list(value: Any) -> Any:
    """Splits a comma-separated string; a list stays as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def is_host(text: str) -> bool:
    """Whether it is a host name, or an address without brackets."""
    try:
        ipaddress.ip_address(text)
        return True
    except ValueError:
        pass
    labels = text.removesuffix(".").split(".")
    # Digits and dots that are no valid address are a typing error, not a name.
    if all(label.isdigit() for label in labels):
        return False
    return len(text) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in labels)


def split_address(text: str) -> tuple[str, int]:
    """(host, port) of `host:port` or `[v6]:port`. ValueError if it is neither."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not host:port; put an IPv6 address in brackets: [::1]:31998")
    if not colon or not is_host(host):
        raise ValueError(f"{text!r} is not host:port; write each head as host:port")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} has no port from 1 to 65535; write each head as host:port")
    return host, int(port)


def check_heads(heads: list[str]) -> list[str]:
    """Checks that each is an address, without duplicates, and that there are not too many."""
    if len(heads) > HEADS_MAX:
        raise ValueError(f"names {len(heads)} heads; {HEADS_MAX} at most, 3 are enough")
    seen = set()
    for head in heads:
        address = split_address(head)
        if address in seen:
            raise ValueError(f"names {head!r} twice; name each head once")
        seen.add(address)
    return heads


def parse_mode(value: Any) -> str:
    """Octal digits as text: a bare 660 in TOML would be a decimal number."""
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise ValueError('is not a file mode; give octal digits in quotes, such as "0660"')
    mode = int(value, 8)
    if mode & 0o600 != 0o600:
        raise ValueError("shuts the daemon's own user out; begin with 06 or 07")
    return f"{mode:04o}"


def check_node_id(value: str) -> str:
    """Checks that the name is safe in logs, file names and metric labels."""
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", value):
        raise ValueError(
            "is not a node id; use 1 to 128 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )
    return value


def check_host(value: str) -> str:
    """Checks that peers can connect to this address."""
    if value == "auto":
        return value
    if not is_host(value):
        raise ValueError('is neither a host name nor an address; give one, or "auto"')
    try:
        everywhere = ipaddress.ip_address(value).is_unspecified
    except ValueError:
        everywhere = False
    if everywhere:
        raise ValueError(
            'is not an address that peers can connect to; give one address of this host, or "auto"'
        )
    return value


def check_listen(value: str) -> str:
    """Checks an address to listen on. Empty: another key's value is used."""
    if value and not is_host(value):
        raise ValueError("is neither a host name nor an address; give one of this host, or 0.0.0.0")
    return value


# A user, or a user and a password, before the @ of an address.
USERINFO = re.compile(r"()(?:(?<=//)[^\s/'\"]+|[^\s/'\":]+:[^\s/'\"]+)(?=@)")


def check_url(value: str) -> str:
    """Checks the URL of an HTTP server. Empty: none."""
    if not value:
        return value
    if "@" in value:
        # Status, logs and the open metrics port show URLs.
        raise ValueError(
            "has a user or a password; give a URL without them, and headers in the environment "
            "variable OTEL_EXPORTER_OTLP_HEADERS"
        )
    try:
        url = urlsplit(value)
        right = url.scheme in ("http", "https") and is_host(url.hostname or "")
        right = right and url.port != 0 and not url.query and not url.fragment
    except ValueError:  # of the port
        right = False
    if not right:
        raise ValueError("is no URL of an HTTP server; give one such as http://127.0.0.1:4318")
    return value


STORE_SCHEMES = ("s3", "gs", "az", "file")
STORE_BYTES_MAX = 512


def check_store(value: str) -> str:
    """Checks the URL of an object store, or a folder in one. Empty: none."""
    if not value:
        return value
    scheme, found, rest = value.partition("://")
    if "@" in value or "?" in value or "#" in value:
        # Status and logs show it.
        raise ValueError(
            "has a user, a password or parameters; give a URL without them, and credentials in the "
            "daemon's environment"
        )
    right = bool(found) and scheme in STORE_SCHEMES and rest.isprintable() and " " not in rest
    if not right or len(value) > STORE_BYTES_MAX or not rest.strip("/"):
        raise ValueError(
            "is no URL of an object store; give one such as s3://bucket/prefix, "
            "gs://bucket/prefix, az://container/prefix or file:///folder"
        )
    if scheme == "file" and not rest.startswith("/"):
        raise ValueError("names no absolute path; give one such as file:///mnt/cold")
    return value.rstrip("/")


ACCOUNTS_MAX = 64


def account(value: Any) -> Any:
    """A user's or group's name or number, as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def check_accounts(names: list[str]) -> list[str]:
    """Checks only the count. Whether the accounts exist is checked when they are used."""
    if len(names) > ACCOUNTS_MAX:
        raise ValueError(f"names {len(names)}; {ACCOUNTS_MAX} at most, use a group")
    return names


def user_number(name: str) -> int:
    """The user's uid. ValueError if there is no such user."""
    return _account_number(name, "user", lambda: pwd.getpwnam(name).pw_uid)


def group_number(name: str) -> int:
    """The group's gid. ValueError if there is no such group."""
    return _account_number(name, "group", lambda: grp.getgrnam(name).gr_gid)


def _account_number(name: str, kind: str, look_up: Callable[[], int]) -> int:
    if name.isascii() and name.isdigit() and int(name) < (1 << 32) - 1:
        return int(name)
    try:
        return look_up()
    except (KeyError, ValueError) as error:
        raise ValueError(f"has {name!r}, and there is no such {kind}") from error


def check_devices(names: list[str]) -> list[str]:
    """Checks that each is `device` or `device:port`, without duplicates, and not too many."""
    if len(names) > DEVICES_MAX:
        raise ValueError(f"names {len(names)} devices; {DEVICES_MAX} at most")
    seen = set()
    for name in names:
        found = _DEVICE.fullmatch(name)
        if found is None or not 1 <= int(found[2] or 1) <= 254:
            raise ValueError(
                f"has {name!r}, which is no RDMA device; give names such as mlx5_0, or mlx5_0:2 "
                "for port 2; `peercachectl devices` lists them"
            )
        port = (found[1], int(found[2] or 1))
        if port in seen:
            raise ValueError(f"names port {port[1]} of {port[0]} twice; name each port once")
        seen.add(port)
    return names


def check_mtu(value: int) -> int:
    """Checks that it is 0 or an MTU of InfiniBand."""
    if value not in (0, 256, 512, 1024, 2048, 4096):
        raise ValueError("is no RDMA MTU; give 256, 512, 1024, 2048 or 4096, or 0 for the port's")
    return value


def parse_hexadecimal(value: Any) -> Any:
    """Accepts a hexadecimal text such as 0x11 for a number."""
    if isinstance(value, str) and re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", value.strip()):
        return int(value, 16)
    return no_bool(value)


def check_faults(value: str) -> str:
    """Checks a plan such as `seed=7,corrupt=0.01,hang=0.001`."""
    for part in filter(None, value.split(",")):
        name, _, text = part.partition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if name in _FAULT_NUMBERS:
            right = text.isascii() and text.isdigit()
        else:
            right = name in _FAULTS and 0.0 <= number <= 1.0
        if not right:
            raise ValueError(
                f"has the part {part!r}; give name=probability with 0..1 for "
                f"{', '.join(_FAULTS)}, or a whole number for {', '.join(_FAULT_NUMBERS)}"
            )
    return value
