"""A real S3 server on this machine, for tests: moto's, in a thread. Nothing else is ever asked."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from holotype.data import storage

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
QUERY = "scheme=http&region=us-east-1&endpoint_override=127.0.0.1:"


class Bucket:
    """A bucket called `bucket`."""

    def __init__(self, port: int) -> None:
        import boto3

        self.port = port
        self.client: Any = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
        self.client.create_bucket(Bucket="bucket")

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket="bucket", Key=key, Body=content)

    def put_folder(self, folder: Path, prefix: str) -> None:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def address(self, key: str) -> str:
        """With the server's address in it."""
        return f"s3://bucket/{key}?{QUERY}{self.port}"


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test opens a store on another machine."""
    original = storage.s3_settings

    def checked(address: str) -> dict[str, Any]:
        told = original(address)
        assert str(told.get("endpoint_override", "")).startswith("127.0.0.1:"), "stay on this machine"
        return told

    monkeypatch.setattr(storage, "s3_settings", checked)


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    """Of the server; skipped where moto is not installed."""
    server = pytest.importorskip("moto.server", reason="moto, a local S3 server, is not installed")
    pytest.importorskip("boto3", reason="boto3 is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        yield running.get_host_and_port()[1]
    finally:
        running.stop()


@pytest.fixture
def bucket(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket."""
    for name, value in {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    with urlopen(Request(f"http://127.0.0.1:{s3_port}/moto-api/reset", method="POST"), timeout=10):
        pass  # what it held for another test
    return Bucket(s3_port)
