"""resourceVersions: decimal, comparable within one resource (KEP-5504), kept as int."""

# A request's resourceVersion goes through strconv.ParseUint(…, 10, 64).
_MAX_REQUESTED = 2**64 - 1


def parse_version(text: str) -> int:
    """Read an object's or a list's resourceVersion.

    Raises ValueError for one that is not a number: such an API breaks KEP-5504 and can't be cached.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"resourceVersion {text!r} is not a decimal number")
    return int(text)


def parse_requested_version(text: str) -> int:
    """Read a ``resourceVersion`` parameter.

    Raises ValueError where the API server would refuse it, and for another spelling of 0: it is not
    "0" where that means any version, and 0 where it is a number.
    """
    version = parse_version(text)
    if version > _MAX_REQUESTED or (version == 0 and text != "0"):
        raise ValueError(f"resourceVersion {text!r} is out of range")
    return version
