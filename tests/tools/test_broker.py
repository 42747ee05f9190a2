"""Where set-up takes a broker from, in which order, and what it says when there is none."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.setup import broker_packages, debian
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing
from rabbitmq_resilience.tools.homes import BOOKWORM, DISTRIBUTION, HOMES, PROVEN, TRIXIE
from rabbitmq_resilience.tools.progress import Failed, run
from tests.messages import Messages
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
    assert [broker_packages.found(home) for home in HOMES] == [None, None, None]


def test_a_named_broker_makes_homes_needless(
    tools: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("erl", "erlc"):
        program(path / name)
    unpacked(tools, "3.10.8", BOOKWORM)
    assert (broker_packages.found(BOOKWORM) or "").startswith("3.10.8 in ")
    assert broker_packages.found(TRIXIE) is None
    monkeypatch.setenv("RABBITMQ_HOME", str(broker_in(tmp_path / "own", "4.2.2")))
    assert broker_packages.found(TRIXIE) == f"not needed, as RABBITMQ_HOME names 4.2.2 in {tmp_path / 'own'}"


def test_a_broker_on_path_is_not_taken(tools: Path, path: Path, tmp_path: Path) -> None:
    unpacked(tools, "3.10.8", BOOKWORM)
    home = broker_in(tmp_path / "installed", "3.13.7")
    (path / "rabbitmq-server").symlink_to(home / "sbin" / "rabbitmq-server")
    assert broker_packages.found(TRIXIE) is None
    assert (broker_packages.found(BOOKWORM) or "").startswith("3.10.8 in ")


@pytest.mark.usefixtures("path")
def test_a_home_that_was_moved_or_not_finished_is_none(tools: Path) -> None:
    unpacked(tools, "4.0.5", TRIXIE)
    (TRIXIE.place(tools) / PROVEN).write_text("/elsewhere/.tools/brokers/trixie", encoding="utf-8")
    assert broker_packages.found(TRIXIE) is None


def test_on_macos_the_broker_of_homebrew_is_home(
    tools: Path, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = broker_in(tmp_path / "Cellar", "4.3.6")
    (path / "rabbitmq-server").symlink_to(home / "sbin" / "rabbitmq-server")
    for name in ("erl", "erlc"):
        program(path / name)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert not tools.exists()
    assert broker_packages.found(TRIXIE) == f"not needed, as Homebrew has 4.3.6 in {home}"


@pytest.mark.usefixtures("path")
def test_a_named_folder_without_a_broker_is_refused(
    tools: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    unpacked(tools, "3.10.8", BOOKWORM)
    monkeypatch.setenv("RABBITMQ_HOME", "/nowhere")
    with message.of(Missing):
        broker_packages.found(TRIXIE)


@pytest.mark.usefixtures("path", "tools")
def test_without_apt_it_says_how_to_provide_a_broker(message: Messages) -> None:
    with message.of(Missing) as missing:
        broker_packages.make(TRIXIE)
    for hint in ("apt-get", "brew install rabbitmq", "RABBITMQ_HOME="):
        assert hint in str(missing.value)


@pytest.mark.usefixtures("tools")
def test_what_is_missing_names_the_broker_on_path(path: Path, tmp_path: Path) -> None:
    home = broker_in(tmp_path / "installed", "3.13.7")
    (path / "rabbitmq-server").symlink_to(home / "sbin" / "rabbitmq-server")
    with pytest.raises(Missing) as missing:
        broker_packages.make(TRIXIE)
    assert f"RABBITMQ_HOME={home}" in str(missing.value)


@pytest.mark.usefixtures("tools")
def test_apt_is_not_asked_on_macos(path: Path, monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    for name in ("apt-get", "apt-cache", "dpkg"):
        program(path / name)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with message.of(Missing) as missing:
        broker_packages.make(TRIXIE)
    assert "brew install rabbitmq" in str(missing.value)


@pytest.mark.core
def test_a_failed_download_leaves_no_broker_and_quotes_apt(tools: Path, path: Path, message: Messages) -> None:
    for name in ("apt-config", "apt-cache", "dpkg"):
        program(path / name)
    program(path / "apt-get", "echo 'E: the mirror is on fire'; exit 100")
    with message.of(Missing) as missing:
        broker_packages.make(DISTRIBUTION)
    assert "E: the mirror is on fire" in str(missing.value)
    assert list((tools / "brokers").iterdir()) == []


def test_where_the_distribution_is_no_debian_its_own_broker_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "own_release", lambda: "bookworm")
    assert [step.optional for step in broker_packages.steps()] == [False, True, False]
    monkeypatch.setattr(debian, "own_release", lambda: None)
    assert [step.title for step in broker_packages.steps()] == ["RabbitMQ of this distribution"]


@pytest.mark.core
@pytest.mark.parametrize("script", ["bin/erl", "erts-15.2.7/bin/erl"])
def test_erl_finds_its_root_wherever_it_lies(script: str, tmp_path: Path) -> None:
    for erl in ("bin/erl", "erts-15.2.7/bin/erl"):
        program(tmp_path / "here" / erl, ERL)
    broker_packages.make_movable(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    link = tmp_path / "erl"
    link.symlink_to(Path("there") / script)
    assert run([link], doing="trying") == f"{tmp_path.resolve() / 'there'}\n"


def test_an_unknown_erl_script_is_not_trusted(tmp_path: Path, message: Messages) -> None:
    program(tmp_path / "bin" / "erl", ERL)
    program(tmp_path / "erts-15.2.7" / "bin" / "erl", "exec beam")
    with message.of(Failed) as refused:
        broker_packages.make_movable(tmp_path)
    assert "erts-15.2.7/bin/erl" in str(refused.value)


def test_names_sizes_and_checksums_come_from_apt() -> None:
    assert debian.parse_uris(ANNOUNCED) == [
        debian.Package("erlang-base_1%3a25.2+dfsg-1_amd64.deb", 9697280, "a" * 64),
        debian.Package("rabbitmq-server_3.10.8-1_all.deb", 14930220, "b" * 64),
    ]


#: What apt of a machine says that has one package; it writes ``{}`` into its file.
APT = """\
cp "$APT_CONFIG" {folder}/apt.conf
case "$1 $2" in
    "--print-uris download") echo "'http://m/x.deb' x.deb 14 SHA256:{sha256}" ;;
    "download x") printf %s "something else" > x.deb ;;
esac
"""
SOMETHING_ELSE = hashlib.sha256(b"something else").hexdigest()


def machine_with_apt(tmp_path: Path, path: Path, sha256: str) -> None:
    for name in ("dpkg", "cp"):
        program(path / name, f'exec {shutil.which(name, path=os.defpath)} "$@"' if name == "cp" else "exit 0")
    program(path / "apt-cache", "echo x")
    dump = ('Acquire::Retries "3";', 'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";')
    program(path / "apt-config", "\n".join(f"echo '{line}'" for line in dump))
    program(path / "apt-get", APT.format(folder=tmp_path, sha256=sha256))


@pytest.mark.core
@pytest.mark.usefixtures("tools")
def test_a_package_with_another_checksum_is_refused(tmp_path: Path, path: Path, message: Messages) -> None:
    machine_with_apt(tmp_path, path, "a" * 64)
    with message.of(Failed) as refused:
        debian.unpack("x", wanted="x", into=tmp_path)
    assert SOMETHING_ELSE in str(refused.value)
    assert "a" * 64 in str(refused.value)


@pytest.mark.core
def test_apt_gets_the_systems_settings_without_its_hooks(tmp_path: Path, path: Path, tools: Path) -> None:
    machine_with_apt(tmp_path, path, "a" * 64)
    with pytest.raises(Failed):
        debian.unpack("x", wanted="x", into=tmp_path)
    settings = (tmp_path / "apt.conf").read_text()
    assert 'Acquire::Retries "3";' in settings
    assert "Invoke" not in settings
    assert f'Dir::State::lists "{tools / "packages" / "lists"}";' in settings


@pytest.mark.core
@pytest.mark.usefixtures("tools")
def test_a_package_with_its_checksum_is_taken(tmp_path: Path, path: Path) -> None:
    machine_with_apt(tmp_path, path, SOMETHING_ELSE)
    debian.unpack("x", wanted="x", into=tmp_path)
