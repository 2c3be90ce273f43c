"""Remote and local storage: S3, Google Cloud, Azure, the Hugging Face hub, files.

Stores on the network are pyarrow's file systems. Who may read them is told by the environment as pyarrow reads it
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...), never by an address: addresses are written
into records. Whatever goes wrong becomes a StorageError, a sentence, within seconds.
"""

from __future__ import annotations

import contextlib
import glob
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import product
from typing import IO, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holotype.data.paths import is_address, is_pattern, object_address, scheme_of, split_query, with_query
from holotype.errors import InputError

BRACES = re.compile(r"\{([^{}]+)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")
MAX_EXPANDED = 1_000_000
"""Files that braces may mean."""


CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 20.0
"""Seconds that a store may take to be reached, and to send the next bytes."""
STORAGE_RETRIES = 2
OPTIONS: dict[str, tuple[str, ...]] = {"gs": ("scheme", "endpoint_override", "anonymous")}
OPTIONS["s3"] = ("region", *OPTIONS["gs"])
"""What may stand behind the question mark of an address."""
READ_AHEAD = 1 << 20
"""Bytes that are asked for at once where a file on the network is read from its beginning to its end."""


class StorageError(InputError):
    """A file cannot be reached."""


def s3_settings(address: str) -> dict[str, Any]:
    """Return options of an S3 file system: from the address, or else from AWS_ENDPOINT_URL, which pyarrow reads in some
    of its ways to open a store and not in others."""
    options = _options(address)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in options:
        scheme, _, place = endpoint.rpartition("://")
        options["endpoint_override"] = place.rstrip("/")
        options.setdefault("scheme", scheme or "https")
    return options


def _s3(address: str) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    limits = {"connect_timeout": CONNECT_TIMEOUT, "request_timeout": READ_TIMEOUT}
    retry = AwsStandardS3RetryStrategy(max_attempts=STORAGE_RETRIES)
    return S3FileSystem(**s3_settings(address), **limits, retry_strategy=retry)


def _google(address: str) -> Any:
    from pyarrow.fs import GcsFileSystem

    return GcsFileSystem(**_options(address), retry_time_limit=timedelta(seconds=READ_TIMEOUT))


def _azure(address: str) -> Any:
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(address)[0]


def _hugging_face(address: str) -> Any:
    from huggingface_hub import HfFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(HfFileSystem()))


STORES: dict[str, Callable[[str], Any]] = {"s3": _s3, "gs": _google, "gcs": _google}
STORES |= {"abfs": _azure, "abfss": _azure, "hf": _hugging_face}
"""Scheme to what opens the file system of an address."""


def _options(address: str) -> dict[str, Any]:
    allowed = OPTIONS["s3" if scheme_of(address) == "s3" else "gs"]
    options: dict[str, Any] = dict(parse_qsl(split_query(address)[1], keep_blank_values=True))
    if odd := sorted(options.keys() - set(allowed)):
        raise StorageError(f"{odd[0]!r} in {address} is no setting; there are {', '.join(allowed)}.")
    return options | {"anonymous": options.get("anonymous", "").lower() in ("1", "true", "yes")}


@lru_cache(maxsize=16)
def _connections(scheme: str, place: str, query: str) -> Any:
    """Return the file system of a bucket; one for all its objects."""
    return STORES[scheme](with_query(f"{scheme}://{place}", query))


def connect(address: str) -> tuple[Any, str]:
    """Return the file system (pyarrow.fs) of an address, and what it calls the object."""
    bare, query = split_query(address.partition("#")[0])
    parts, scheme = urlsplit(bare), scheme_of(address)
    azure = scheme in ("abfs", "abfss")
    if parts.password is not None or (parts.username and not azure):
        where = "in the environment, as AWS_ACCESS_KEY_ID: addresses are written into records"
        raise StorageError(f"The address of {parts.hostname} holds a name or password; give these {where}.")
    with storage_errors(address):
        system = _connections(scheme, parts.netloc, query)
    first = parts.netloc
    if azure:  # the host may be the account, and stands in front of the container or behind it
        first = parts.username or ("" if "." in first else first)
    return system, unquote(f"{first}{parts.path}").strip("/")


@contextlib.contextmanager
def storage_errors(address: str) -> Iterator[None]:
    """Turn whatever a library says of a file into a StorageError."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{address} does not exist; check the address.") from error
    except Exception as error:  # pyarrow, fsspec and the hub have many errors of their own
        said = " ".join(str(error).split())[:200]
        raise StorageError(f"{address} cannot be read ({said}); check address, network and keys.") from error


_remote_stamps: dict[str, str] = {}
"""Address to stamp, as a store told it when it was listed: asking for each object would take a question each."""


def list_files(address: str) -> list[str]:
    """Return the addresses of all objects below an address, sorted; the object itself where it is one."""
    from pyarrow.fs import FileSelector, FileType

    system, name = connect(address)
    bare, query = split_query(address)
    with storage_errors(address):
        infos = [system.get_file_info(name)]
        if infos[0].type == FileType.NotFound:
            raise FileNotFoundError(address)
        if infos[0].type != FileType.File:
            infos = system.get_file_info(FileSelector(name, recursive=True))
    start, first = bare.rstrip("/"), len(name) + bool(name)  # an account itself has no name
    stamps = {}
    for info in infos:
        if info.type == FileType.File:
            below = info.path.lstrip("/")[first:]
            stamps[object_address(start, below, query) if below else address] = _remote_stamp(info)
    _remote_stamps.update(stamps)
    return sorted(stamps)


def remote_stamp(file: str) -> str:
    """Return size and time of change of a file; "" where it is gone."""
    if not is_address(file):
        try:
            stat = os.stat(file)
        except (OSError, ValueError):
            return ""
        return f"{stat.st_size}-{stat.st_mtime_ns}"
    if file not in _remote_stamps:
        system, name = connect(file)
        with storage_errors(file):
            info = system.get_file_info(name)
        if not info.is_file:
            return ""
        _remote_stamps[file] = _remote_stamp(info)
    return _remote_stamps[file]


def _remote_stamp(info: Any) -> str:
    return f"{info.size}-{info.mtime_ns or 0}"


@lru_cache(maxsize=64)
def _remote(address: str, stamp: str) -> Any:
    """Return an open file on the network; pyarrow lets threads read it at once. stamp: another file is opened anew."""
    system, name = connect(address)
    return system.open_input_file(name)


def random_access(file: str) -> Any:
    """Return what pyarrow reads a Parquet file from: the path itself, or an open file on the network."""
    if not is_address(file):
        return file
    with storage_errors(file):
        return _remote(file, remote_stamp(file))


def read_part(file: str, offset: int, size: int) -> bytes:
    """Return `size` bytes from `offset` on; fewer where the file ends."""
    with storage_errors(file):
        if is_address(file):
            return bytes(_remote(file, remote_stamp(file)).read_at(size, offset))
        with open(file, "rb") as stream:
            stream.seek(offset)
            return stream.read(size)


def read_object(address: str) -> bytes:
    """Return all bytes of an object on the network."""
    system, name = connect(address)
    with storage_errors(address), system.open_input_stream(name) as stream:
        return bytes(stream.read())


@contextlib.contextmanager
def stream_file(file: str) -> Iterator[IO[bytes]]:
    """Open a file to go through once; one on the network is read ahead, and what is skipped is not fetched."""
    if not is_address(file):
        with storage_errors(file), open(file, "rb") as stream:
            yield stream
        return
    system, name = connect(file)
    with storage_errors(file), system.open_input_file(name) as stream:
        yield io.BufferedReader(stream, READ_AHEAD)


def source_files(source: str) -> list[str]:
    """Return the files that 'shard-{000..099}.tar' or '*.tar' mean, absolute, in their order; one that is there is
    itself."""
    if not is_pattern(source):
        return [source if is_address(source) else os.path.abspath(source)]
    parts = [_expand_stars(part) if "*" in part else [part] for part in expand_braces(source)]
    files = [file if is_address(file) else os.path.abspath(file) for part in parts for file in part]
    if not files:
        raise InputError(f"No file is called {source}; check the pattern.")
    if gone := [file for file in files if not is_address(file) and not os.path.isfile(file)]:
        raise InputError(f"{len(gone):,} of {len(files):,} files of {source} are missing, as {gone[0]} is.")
    return files


def expand_braces(text: str) -> list[str]:
    """Return what {000..099} and {a,b} mean, as a shell writes them out."""
    choices: list[Sequence[str]] = []
    for i, part in enumerate(BRACES.split(text)):
        found = RANGE.fullmatch(part) if i % 2 else None
        if found:
            numbers = range(int(found[1]), int(found[2]) + 1)
            if not 0 < len(numbers) <= MAX_EXPANDED:
                raise InputError(f"{{{part}}} is no range; write the smaller number first: {{000..099}}.")
            choices.append([f"{n:0{len(found[1])}d}" for n in numbers])
        else:
            choices.append(part.split(",") if i % 2 else [part])
    if math.prod(map(len, choices)) > MAX_EXPANDED:
        raise InputError(f"{text} means more than {MAX_EXPANDED:,} files; name the folder that they lie in.")
    return ["".join(parts) for parts in product(*choices)]


def _expand_stars(pattern: str) -> list[str]:
    if not is_address(pattern):
        return sorted(glob.glob(pattern))
    bare, query = split_query(pattern)
    folder = bare[: bare.index("*")].rpartition("/")[0]
    fits = re.compile("[^/]*".join(re.escape(part) for part in bare.split("*")))
    return [file for file in list_files(with_query(folder, query)) if fits.fullmatch(split_query(file)[0])]
