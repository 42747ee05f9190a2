"""The command ``tap``: how its brokers are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.workload.tap_command import main


@pytest.mark.parametrize("arguments", [[], ["amqp://127.0.0.1", "--cluster", "c.yaml"], ["amqp://me:x@127.0.0.1"]])
def test_brokers_are_named_once_and_without_a_password(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--into", str(tmp_path / "record")], program="tap")
    assert ("password" if "@" in "".join(arguments) else "cluster file") in capsys.readouterr().err
    assert not (tmp_path / "record").exists()


def test_a_cluster_file_that_is_wrong_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("cluster: x\nnode: []\n", encoding="utf-8")
    assert main(["--cluster", str(tmp_path / "c.yaml"), "--into", str(tmp_path / "record")], program="tap") == 1
    assert "line 2, node: no such field" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address", ["amqp://guest:hunter2", "guest:hunter2", "amqp://hunter2:70000", "amqp://r:0", "amqp://[hunter2"]
)
def test_an_address_that_is_none_is_not_shown(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["amqp://r", address, "--into", str(tmp_path / "record")], program="tap")
    shown = capsys.readouterr().err
    assert "broker 2: this is no address of a broker" in shown
    assert "hunter2" not in shown
