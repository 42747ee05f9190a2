"""Set-up: what it looks for in which order, what it skips, and what it says when something is missing.

Nothing is downloaded here: programs are small scripts in a PATH of the test's own.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from setup import __main__ as command
from setup import broker, debian, environment, toxiproxy
from setup.progress import Failed, Line, run
from setup.steps import ROOT, Missing, Step, take

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


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH; nothing is named in the environment."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("RABBITMQ_HOME", "TOXIPROXY_SERVER", "PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``.tools`` of the test's own, empty."""
    folder = tmp_path / ".tools"
    for module in (broker, toxiproxy, debian, environment):
        monkeypatch.setattr(module, "TOOLS", folder)
    monkeypatch.setattr(broker, "PLACE", folder / "broker")
    monkeypatch.setattr(toxiproxy, "PLACE", folder / "bin" / "toxiproxy-server")
    monkeypatch.setattr(toxiproxy, "STAMP", folder / "bin" / "toxiproxy-version")
    return folder


def program(file: Path, script: str = "exit 0") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def broker_in(home: Path, version: str) -> Path:
    program(home / "sbin" / "rabbitmq-server")
    (home / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return home


def unpacked(tools: Path, version: str) -> None:
    broker_in(tools / f"broker/usr/lib/rabbitmq/lib/rabbitmq_server-{version}", version)
    for name in ("erl", "erlc"):
        program(tools / "broker/usr/lib/erlang/bin" / name)


# --- steps


def test_a_step_that_is_there_is_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    take([Step("One", lambda: "here", lambda: pytest.fail("was made")), Step("Two", lambda: None, lambda: "made")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["[1/2] One: here", "[2/2] Two: not there yet", "[2/2] Two: made, in 0 s"]


def test_what_is_missing_ends_set_up_with_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> str:
        raise Missing("no moon; wait for the night")

    later = Step("Tide", lambda: pytest.fail("went on"), lambda: "")
    monkeypatch.setitem(command.STEPS, "all", (Step("Moon", lambda: None, make), later))
    assert command.main([]) == 1
    assert capsys.readouterr().err == "\nSet-up cannot go on.\nno moon; wait for the night\n"


def test_an_unknown_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["everything"]) == 2
    assert "all|python" in capsys.readouterr().err


# --- progress


def test_quick_programs_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([sys.executable, "-c", "print('done')"], doing="trying") == "done\n"
    assert capsys.readouterr().out == ""


def test_a_failing_program_is_quoted_by_its_last_lines() -> None:
    script = "import sys; print(*range(100), sep='\\n'); sys.exit('the disk is full')"
    with pytest.raises(Failed, match=r"trying: `python\S*` ended with status 1\n") as failed:
        run([sys.executable, "-c", script], doing="trying")
    assert "the disk is full" in str(failed.value)
    assert "\n50\n" not in str(failed.value)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(Failed, match="/no/such/program does not start"):
        run(["/no/such/program"], doing="trying")


def test_without_a_terminal_progress_is_repeated_ever_more_rarely() -> None:
    out = io.StringIO()
    line = Line("fetching", out=out)
    line._start_s -= 9
    line.show("4.0 MB of 8.0 MB")
    line.show("4.1 MB of 8.0 MB")
    assert re.fullmatch(r"      fetching: 4.0 MB of 8.0 MB, \d+ s\n", out.getvalue())


# --- the broker


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


def test_erl_finds_its_root_wherever_it_lies(tmp_path: Path) -> None:
    erl = program(tmp_path / "here" / "bin" / "erl", ERL)
    broker.make_movable(erl)
    (tmp_path / "here").rename(tmp_path / "there")
    link = tmp_path / "erl"
    link.symlink_to("there/bin/erl")
    assert run([link], doing="trying") == f"{tmp_path.resolve() / 'there'}\n"


def test_an_unknown_erl_script_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="RABBITMQ_HOME"):
        broker.make_movable(program(tmp_path / "erl", "exec beam"))


# --- packages of the distribution


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


# --- Toxiproxy


def test_toxiproxy_on_path_is_taken_first(tools: Path, path: Path) -> None:
    server = program(path / "toxiproxy-server")
    program(tools / "bin" / "toxiproxy-server")
    assert toxiproxy.found() == str(server)


@pytest.mark.usefixtures("path")
def test_our_own_toxiproxy_is_kept_while_its_version_is_the_pinned_one(tools: Path) -> None:
    server = program(tools / "bin" / "toxiproxy-server")
    assert toxiproxy.found() is None
    toxiproxy.STAMP.write_text(toxiproxy.VERSION)
    assert toxiproxy.found() == str(server)
    toxiproxy.STAMP.write_text("2.1.0")
    assert toxiproxy.found() is None


@pytest.mark.usefixtures("path", "tools")
def test_a_named_toxiproxy_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOXIPROXY_SERVER", "/nowhere")
    with pytest.raises(Missing, match="TOXIPROXY_SERVER names /nowhere"):
        toxiproxy.found()


def test_go_builds_toxiproxy_within_the_checkout(tools: Path, path: Path) -> None:
    program(path / "go", '/bin/mkdir -p "$GOBIN" "$GOPATH" && echo "$@" > "$GOBIN/server"')
    assert toxiproxy.make() == str(tools / "bin" / "toxiproxy-server")
    assert f"cmd/server@v{toxiproxy.VERSION}" in toxiproxy.PLACE.read_text()
    assert sorted(file.name for file in tools.rglob("*")) == ["bin", "toxiproxy-server", "toxiproxy-version"]


@pytest.mark.usefixtures("tools")
def test_without_go_and_release_both_reasons_are_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path / "go", "echo 'no route to the modules'; exit 1")
    monkeypatch.setattr(toxiproxy, "release_platform", lambda: "plan9_mips")
    with pytest.raises(Missing) as missing:
        toxiproxy.make()
    for hint in ("no route to the modules", "no checksum is known for plan9_mips", "brew install toxiproxy"):
        assert hint in str(missing.value)


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "linux_amd64"),
        ("Linux", "aarch64", "linux_arm64"),
        ("Darwin", "arm64", "darwin_arm64"),
        ("Darwin", "x86_64", "darwin_amd64"),
    ],
)
def test_releases_are_pinned_for_the_usual_machines(
    system: str, machine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert toxiproxy.release_platform() == name
    assert re.fullmatch("[0-9a-f]{64}", toxiproxy.RELEASE_SHA256[name])


def test_a_release_is_used_only_with_the_pinned_checksum(tools: Path, tmp_path: Path) -> None:
    archive = tmp_path / "release.tar.gz"
    server = program(tmp_path / "toxiproxy-server")
    with tarfile.open(archive, "w:gz") as content:
        content.add(server, arcname="toxiproxy-server")
    toxiproxy.PLACE.parent.mkdir(parents=True)
    with pytest.raises(Failed, match="refused, its SHA-256 is"):
        toxiproxy.extract(archive, sha256="0" * 64)
    assert not toxiproxy.PLACE.exists()
    toxiproxy.extract(archive, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    assert os.access(tools / "bin" / "toxiproxy-server", os.X_OK)


# --- Python


def test_a_python_that_is_too_old_is_passed_over_and_said(path: Path) -> None:
    for name in ("python3", "python3.12"):
        program(path / name, "exit 1")
    (path / "dirname").symlink_to("/usr/bin/dirname")
    (path / "cat").symlink_to("/bin/cat")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for hint in ("Python 3.11 or newer is needed", "python3-venv", "brew install python", "PYTHON="):
        assert hint in done.stderr


def test_the_first_python_that_is_new_enough_is_used(path: Path) -> None:
    program(path / "python3", "exit 1")
    program(path / "python3.12", '[ "$1" = -c ] || echo "started: $@"')
    (path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start", "python"], capture_output=True, text=True, check=True)
    assert done.stdout == "started: -m setup python\n"


def test_packages_are_installed_again_when_a_pin_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("pika==1.4.4\n")
    monkeypatch.setattr(environment, "CONSTRAINTS", constraints)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    assert environment.found() is None
    (tmp_path / "stamp").write_text(environment.key())
    assert environment.found() is not None
    constraints.write_text("pika==1.4.5\n")
    assert environment.found() is None


def test_packages_that_cannot_be_had_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = program(tmp_path / "python", "echo 'no matching distribution'; exit 1")
    monkeypatch.setattr(environment, "PYTHON", pip)
    monkeypatch.setattr(environment, "_belongs_here", lambda: True)
    with pytest.raises(Missing, match=r"(?s)no matching distribution.*PIP_INDEX_URL"):
        environment.make()


def test_everything_that_is_installed_is_pinned() -> None:
    pinned = {canonicalize_name(line.split("==")[0]) for line in environment.CONSTRAINTS.read_text().splitlines()}
    needed: set[str] = set()
    todo = [Requirement(text) for text in environment.requirements(ROOT / "pyproject.toml")]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in needed:
            continue
        needed.add(name)
        for text in distribution(name).requires or []:
            below = Requirement(text)
            if below.marker is None or below.marker.evaluate({"extra": ""}):
                todo.append(below)
    assert needed - pinned == set()
