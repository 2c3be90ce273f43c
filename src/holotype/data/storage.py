"""Remote and local storage: S3, Google Cloud, Azure, the Hugging Face hub, files.

    photos/fox/1.jpg                       a file
    train.parquet#12                       the image in row 12 (from 0) of a Parquet file
    shard-000.tar#fox-0001                 the image with this key in a tar
    s3://bucket/photos/fox/1.jpg           an object; so are gs://, abfs:// and hf://
    s3://bucket/shard.tar?region=eu#key    what a store must be told stands behind a question mark

A real file whose name looks like one of the others wins. No file is opened here.

Stores on the network are pyarrow's file systems. Who may read them is told by the environment as pyarrow reads it
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...), never by an address: addresses are written
into records. Whatever goes wrong becomes a StorageError, a sentence, within seconds.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import lru_cache
from typing import IO, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from holotype.errors import InputError

SCHEME = re.compile(r"([a-z][a-z0-9]+)://", re.IGNORECASE)
MEMBER_MARK = re.compile(
    r"(?P<file>.+?\.(?P<kind>parquet|tar)(?:\?[^#]*)?)#(?P<key>.+)", re.IGNORECASE | re.DOTALL
)
UNESCAPED = "/!$&'()*+,;=:@~ -_."
"""Signs of an object's name that stand in an address as they are; letters of all languages do as well."""

MemberAddress = tuple[str, str, str]
"""Kind ("parquet" or "tar"), file and key of an image inside a file."""


def is_address(path: str) -> bool:
    """Is this an object on the network, s3://bucket/key, and no file?"""
    return SCHEME.match(path) is not None


def is_pattern(source: str) -> bool:
    """Does a source mean several files, by braces or stars, 'shard-{000..099}.tar'?"""
    return ("{" in source or "*" in source) and (is_address(source) or not os.path.exists(source))


def scheme_of(address: str) -> str:
    """`s3` of s3://bucket/key; "" of a path."""
    found = SCHEME.match(address)
    return found[1].lower() if found else ""


def split_query(address: str) -> tuple[str, str]:
    """The address without what stands behind its question mark, and that."""
    bare, _, query = address.partition("?")
    return (bare, query) if is_address(address) else (address, "")


def with_query(bare: str, query: str) -> str:
    """The inverse of split_query; a key behind # stays at the end."""
    file, mark, key = bare.partition("#")
    return f"{file}?{query}{mark}{key}" if query else bare


def object_address(start: str, name: str, query: str) -> str:
    """The address of an object. start: s3://bucket; name: as the store calls it."""
    safe = "".join(sign if sign in UNESCAPED or sign.isalnum() else quote(sign) for sign in name)
    return with_query(f"{start.rstrip('/')}/{safe}", query)


def split_member(path: str) -> MemberAddress | None:
    """Kind, file and key of an image inside a Parquet file or a tar; None for everything else."""
    found = MEMBER_MARK.fullmatch(path)
    if found is None:
        return None
    if not is_address(path) and (os.path.exists(path) or not os.path.isfile(found["file"])):
        return None
    return found["kind"].lower(), found["file"], found["key"]


DENIED_WORDS = re.compile(
    r"ACCESS_DENIED|AccessDenied|Forbidden|(?:HTTP|status) 403|HTTP 401|Unauthorized|\bgated\b"
    r"|INVALID_ACCESS_KEY|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN"
)
MISSING_WORDS = re.compile(r"NO_SUCH|NoSuch|\b404\b")
TIMEOUT_WORDS = re.compile(r"NETWORK_CONNECTION|curlCode|[Tt]imed out|[Tt]imeout|[Cc]onnect|resolve|retry")
"""What libraries say of a store that refuses, that has no such file, and that does not answer."""


def storage_error_text(address: str, error: Exception) -> str:
    """The sentence. address: as it was given."""
    said = " ".join(str(error).split())
    reason = _storage_reason(said, address)
    missing = isinstance(error, FileNotFoundError)
    if not missing and (isinstance(error, PermissionError) or DENIED_WORDS.search(reason)):
        return f"{address} may not be read with the rights that are given; check the keys in the environment."
    if missing or "NotFound" in type(error).__name__ or MISSING_WORDS.search(reason):
        return f"{address} does not exist; check the address."
    if isinstance(error, ConnectionError | TimeoutError) or TIMEOUT_WORDS.search(reason):
        return f"{address} does not answer; check the address, the network and the endpoint ({said[:160]})."
    return f"{address} cannot be read ({said[:200]})."


def _storage_reason(said: str, address: str) -> str:
    """What is said without paths and the words of the address, which libraries repeat: a port 40412 or a bucket
    `aggregated` is no reason."""
    spellings = (address, unquote(address), quote(address, safe="/?&=#:@"))
    words = {word for text in spellings for word in re.split(r"[/?&=#:@]+", text) if word}
    longest_first = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(r"\S*/\S*", "", re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", "", said))


CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 20.0
"""Seconds that a store may take to be reached, and to send the next bytes."""
STORAGE_RETRIES = 2
TRUE_WORDS = ("1", "true", "yes")
READ_AHEAD = 1 << 20
"""Bytes that are asked for at once where a file on the network is read from its beginning to its end."""
OPTIONS = {
    "s3": ("region", "scheme", "endpoint_override", "anonymous"),
    "gs": ("scheme", "endpoint_override", "anonymous"),
}
"""What may stand behind the question mark of an address."""


class StorageError(InputError):
    """A file cannot be reached."""


# -- file systems ---------------------------------------------------------------------------------------


def s3_settings(address: str) -> dict[str, Any]:
    """Options of an S3 file system: from the address, or else from AWS_ENDPOINT_URL, which pyarrow reads in some of its
    ways to open a store and not in others."""
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
        raise StorageError(
            f"{odd[0]!r} in {address} is no setting of a store; there are {', '.join(allowed)}."
        )
    return options | {"anonymous": options.get("anonymous", "").lower() in TRUE_WORDS}


@lru_cache(maxsize=16)
def _connections(scheme: str, place: str, query: str) -> Any:
    """The file system of a bucket; one for all its objects."""
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise StorageError(f"{scheme}:// is no store that can be read; there are {known}.")
    return STORES[scheme](f"{scheme}://{place}" + (f"?{query}" if query else ""))


def connect(address: str) -> tuple[Any, str]:
    """The file system (pyarrow.fs) of an address, and what it calls the object."""
    bare, query = split_query(address.partition("#")[0])
    parts, scheme = urlsplit(bare), scheme_of(address)
    azure = scheme in ("abfs", "abfss")
    if parts.password is not None or (parts.username and not azure):
        raise StorageError(
            f"The address of {parts.hostname} has a name or a password in it, which would be written into records; "
            "give these in the environment instead, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    place = parts.netloc
    with storage_errors(address):
        system = _connections(scheme, place, query)
    first = place
    if azure:  # the host may be the account, and stands in front of the container or behind it
        first = parts.username or ("" if "." in place else place)
    return system, unquote(f"{first}{parts.path}").strip("/")


@contextlib.contextmanager
def storage_errors(address: str) -> Iterator[None]:
    """Turn whatever a library says of a file into a StorageError."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:  # pyarrow, fsspec and the hub have many errors of their own
        raise StorageError(storage_error_text(address, error)) from error


# -- files ----------------------------------------------------------------------------------------------

_remote_stamps: dict[str, str] = {}
"""Address to stamp, as a store told it when it was listed: asking for each object would take a question each."""


def list_files(address: str) -> list[str]:
    """Return the addresses of all objects below an address, sorted; the object itself where it is one."""
    from pyarrow.fs import FileSelector, FileType

    system, name = connect(address)
    bare, query = split_query(address)
    with storage_errors(address):
        info = system.get_file_info(name)
        if info.type == FileType.NotFound:
            raise FileNotFoundError(address)
        single = info.type == FileType.File
        infos = [info] if single else system.get_file_info(FileSelector(name, recursive=True))
    start, first = bare.rstrip("/"), len(name) + bool(name)  # an account itself has no name
    stamps = {}
    for info in infos:
        if info.type == FileType.File:
            below = info.path.lstrip("/")[first:]
            stamps[object_address(start, below, query) if below else address] = _remote_stamp(info)
    _remote_stamps.update(stamps)
    return sorted(stamps)


def remote_stamp(file: str) -> str:
    """Size and time of change of a file; "" where it is gone."""
    if is_address(file):
        if file not in _remote_stamps:
            from pyarrow.fs import FileType

            system, name = connect(file)
            with storage_errors(file):
                info = system.get_file_info(name)
            if info.type != FileType.File:
                return ""
            _remote_stamps[file] = _remote_stamp(info)
        return _remote_stamps[file]
    try:
        stat = os.stat(file)
    except (OSError, ValueError):
        return ""
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def _remote_stamp(info: Any) -> str:
    return f"{info.size}-{info.mtime_ns or 0}"


@lru_cache(maxsize=64)
def _remote(address: str, stamp: str) -> Any:
    """An open file on the network; pyarrow lets threads read it at once. stamp: another file is opened anew."""
    system, name = connect(address)
    return system.open_input_file(name)


def random_access(file: str) -> Any:
    """What pyarrow reads a Parquet file from: the path itself, or an open file on the network."""
    if not is_address(file):
        return file
    with storage_errors(file):
        return _remote(file, remote_stamp(file))


def read_part(file: str, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` on; fewer where the file ends."""
    if is_address(file):
        with storage_errors(file):
            return bytes(_remote(file, remote_stamp(file)).read_at(size, offset))
    with storage_errors(file), open(file, "rb") as stream:
        stream.seek(offset)
        return stream.read(size)


def read_file(file: str) -> bytes:
    """All bytes of a file."""
    if is_address(file):
        system, name = connect(file)
        with storage_errors(file), system.open_input_stream(name) as stream:
            return bytes(stream.read())
    with storage_errors(file), open(file, "rb") as stream:
        return stream.read()


@contextlib.contextmanager
def stream_file(file: str) -> Iterator[IO[bytes]]:
    """A file to go through once; one on the network is read ahead, and what is skipped is not fetched."""
    if not is_address(file):
        with storage_errors(file), open(file, "rb") as stream:
            yield stream
        return
    system, name = connect(file)
    with storage_errors(file), system.open_input_file(name) as stream:
        yield io.BufferedReader(stream, READ_AHEAD)
