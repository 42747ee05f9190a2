"""The command ``tap``: in front of each broker of a cluster file, and what it keeps of messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tap.wire_history import PROPERTIES_FILE
from rabbitmq_resilience.workload.tap_command import main
from tests.needs import skipped_without
from tests.tap.records import kinds, only

pytestmark = pytest.mark.core

#: Publishes a message with a secret, and gets it.
PROGRAM = """
import os, pika
port = int(os.environ["AMQP_PORT"])
tls = pika.SSLOptions(__import__("ssl").create_default_context(cafile=os.environ["AMQP_CA_FILE"]), "127.0.0.1")
with pika.BlockingConnection(pika.ConnectionParameters(os.environ["AMQP_HOST"], port, ssl_options=tls)) as connection:
    channel = connection.channel()
    channel.queue_declare("post", exclusive=True)
    properties = pika.BasicProperties(headers={"customer": "header-of-mine"}, user_id="guest")
    channel.basic_publish("", "post", b"body-of-mine", properties)
    assert channel.basic_get("post", auto_ack=True)[2] == b"body-of-mine"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with (
        skipped_without(),
        LocalCluster.form(Topology(name="tapped", zones={"a": 1}, partition_handling="ignore")) as formed,
    ):
        yield formed


@pytest.fixture
def file(cluster: LocalCluster, tmp_path: Path) -> Path:
    """Return the file of a cluster whose second broker is never asked."""
    (tmp_path / "password").write_text("pass-word\n", encoding="utf-8")
    management = f"http://127.0.0.1:{cluster.management_port('a1')}"
    rows = [("rabbit@a", cluster.amqp_endpoint("a1").port, management), ("rabbit@b", 1, "http://127.0.0.1:2")]
    nodes = "".join(
        f"  - {{name: {name}, zone: a, amqp: 'amqp://127.0.0.1:{port}', management: '{management}'}}\n"
        for name, port, management in rows
    )
    file = tmp_path / "cluster.yaml"
    secrets = "user: {file: password}\npassword: {file: password}\n"
    file.write_text(f"cluster: theirs\n{secrets}partition_handling: ignore\nnodes:\n{nodes}", encoding="utf-8")
    return file


@pytest.mark.parametrize("kept", ["hash", "values"])
def test_values_of_properties_are_kept_only_when_asked_for(
    kept: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "record"
    asked = ["--properties", "values"] if kept == "values" else []
    command = ["--", sys.executable, "-c", PROGRAM]
    assert main(["--cluster", str(file), "--tls", "--into", str(folder), *asked, *command], program="tap") == 0
    printed = capsys.readouterr().out
    assert [line.split(" is reached at ")[0] for line in printed.splitlines()[:2]] == ["rabbit@a", "rabbit@b"]
    assert kinds(folder) == ["PUBLISHED", "GOT"]
    assert only(folder, "opened").fields["node"] == "rabbit@a"
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [name for name, data in written.items() if b"pass-word" in data or b"body-of-mine" in data] == []
    assert [name for name, data in written.items() if b"of-mine" in data] == [PROPERTIES_FILE] * (kept == "values")
    if kept == "values":
        lines = [json.loads(line) for line in written[PROPERTIES_FILE].splitlines()]
        assert [line["kind"] for line in lines] == ["PUBLISHED", "GOT"]
        assert lines[0]["properties"] == {"headers": {"customer": "header-of-mine"}, "user_id": "guest"}
    assert ("no properties" in printed) is (kept == "hash")
