"""Where set-up takes a broker from, in which order, and what it says when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.tools import broker, debian
from rabbitmq_resilience.tools.progress import Failed, run
from rabbitmq_resilience.tools.steps import Missing
from tests.tools.programs import broker_in, program, unpacked

ANNOUNCED = """\
Reading package lists...
'http://mirror.example/e/erlang-base_25.2+dfsg-1_amd64.deb' erlang-base_1%3a25.2+dfsg-1_amd64.deb 9697280 SHA256:{a}
'http://mirror.example/r/rabbitmq-server_3.10.8-1_all.deb' rabbitmq-server_3.10.8-1_all.deb 14930220 SHA256:{b}
""".format(a="a" * 64, b="b" * 64)

ERL = """\
if [ -z "$ERL_ROOTDIR" ]
then
    ROOTDIR=/usr/lib/erlang
else
    ROOTDIR="/usr/lib/erlang"
fi
echo "$ROOTDIR"
"""


@pytest.mark.usefixtures("path")
def test_without_any_broker_none_is_found(tools: Path) -> None:
    assert not tools.exists()
    assert broker.found() is None


@pytest.mark.usefixtures("path")
def test_the_named_broker_is_taken_before_the_unpacked_one(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked(tools, "3.10.8")
    assert (broker.found() or "").startswith("3.10.8 in ")
    monkeypatch.setenv("RABBITMQ_HOME", str(broker_in(tmp_path / "own", "4.0.5")))
    assert broker.found() == f"4.0.5 in {tmp_path / 'own'}"


def test_the_broker_on_path_is_taken_before_the_unpacked_one(tools: Path, path: Path, tmp_path: Path) -> None:
    unpacked(tools, "3.10.8")
    home = broker_in(tmp_path / "installed", "3.13.7")
    (path / "rabbitmq-server").symlink_to(home / "sbin" / "rabbitmq-server")
    assert broker.found() == f"3.13.7 in {home}"


@pytest.mark.usefixtures("path")
def test_a_named_folder_without_a_broker_is_refused(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(tools, "3.10.8")
    monkeypatch.setenv("RABBITMQ_HOME", "/nowhere")
    with pytest.raises(Missing, match="RABBITMQ_HOME is set, but: no broker in /nowhere"):
        broker.found()


@pytest.mark.usefixtures("path", "tools")
def test_without_apt_it_says_how_to_provide_a_broker() -> None:
    with pytest.raises(Missing) as missing:
        broker.make()
    for hint in ("there is no apt-get here", "brew install rabbitmq", "RABBITMQ_HOME=", "Debian"):
        assert hint in str(missing.value)


@pytest.mark.usefixtures("tools")
def test_apt_is_not_asked_on_macos(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("apt-get", "apt-cache", "dpkg"):
        program(path / name)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(Missing, match="brew install rabbitmq"):
        broker.make()


def test_a_failed_download_leaves_no_broker_and_quotes_apt(tools: Path, path: Path) -> None:
    for name in ("apt-config", "apt-cache", "dpkg"):
        program(path / name)
    program(path / "apt-get", "echo 'E: the mirror is on fire'; exit 100")
    with pytest.raises(Missing, match="E: the mirror is on fire"):
        broker.make()
    assert list(tools.iterdir()) == []


@pytest.mark.parametrize("script", ["bin/erl", "erts-15.2.7/bin/erl"])
def test_erl_finds_its_root_wherever_it_lies(script: str, tmp_path: Path) -> None:
    for erl in ("bin/erl", "erts-15.2.7/bin/erl"):
        program(tmp_path / "here" / erl, ERL)
    broker.make_movable(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    link = tmp_path / "erl"
    link.symlink_to(Path("there") / script)
    assert run([link], doing="trying") == f"{tmp_path.resolve() / 'there'}\n"


def test_an_unknown_erl_script_is_not_trusted(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "erl", ERL)
    program(tmp_path / "erts-15.2.7" / "bin" / "erl", "exec beam")
    with pytest.raises(Failed, match=r"erts-15\.2\.7/bin/erl .* RABBITMQ_HOME"):
        broker.make_movable(tmp_path)


def test_names_sizes_and_checksums_come_from_apt() -> None:
    assert debian.parse_uris(ANNOUNCED) == [
        debian.Package("erlang-base_1%3a25.2+dfsg-1_amd64.deb", 9697280, "a" * 64),
        debian.Package("rabbitmq-server_3.10.8-1_all.deb", 14930220, "b" * 64),
    ]


def test_a_package_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(b"something else")
    with pytest.raises(Failed, match=r"x\.deb has SHA-256 .*, the distribution's lists say aaaa"):
        debian._checked(tmp_path, debian.Package("x.deb", 14, "a" * 64))


def test_apt_gets_the_systems_settings_without_its_hooks(tmp_path: Path, path: Path) -> None:
    dump = ('Acquire::Retries "3";', 'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";')
    program(path / "apt-config", "\n".join(f"echo '{line}'" for line in dump))
    settings = Path(debian._apt(tmp_path, lists=tmp_path / "lists")["APT_CONFIG"]).read_text()
    assert 'Acquire::Retries "3";' in settings
    assert "Invoke" not in settings
    assert f'Dir::State::lists "{tmp_path / "lists"}";' in settings
