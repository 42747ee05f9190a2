"""RabbitMQ's own releases come from a server with files of the same names, and are verified before they are used."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import mkdtemp

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools import releases
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.tools.homes import TRIXIE
from rabbitmq_resilience.tools.progress import Failed
from rabbitmq_resilience.tools.releases import Source
from tests.messages import Messages

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg makes the keys of the tests"),
]


class Signer:
    """A key of the test's own."""

    def __init__(self) -> None:
        self.home = Path(mkdtemp(prefix="gnupg-"))  # short, as sockets demand
        self._gpg("--quick-generate-key", "tester", "ed25519", "sign", "never")
        listed = self._gpg("--list-keys", "--with-colons").decode()
        self.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))

    def key(self) -> str:
        return self._gpg("--armor", "--export").decode()

    def sign(self, file: Path) -> None:
        self._gpg("--armor", "--detach-sign", str(file))

    def _gpg(self, *arguments: str) -> bytes:
        options = ("--homedir", str(self.home), "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback")
        return subprocess.run(["gpg", *options, *arguments], capture_output=True, check=True).stdout

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], capture_output=True, check=False)
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    made = Signer()
    yield made
    made.close()


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder; a list of releases is the file of its page."""

    def do_GET(self) -> None:
        if self.path.startswith("/releases?"):
            self.path = f"/page-{self.path.rpartition('=')[2]}.json"
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Source]]:
    """A folder, and the source that has its files."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield folder, Source(f"{address}/releases", f"{address}/releases/download", f"{address}/key.asc")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def archive(folder: Path, version: str, add: Callable[[tarfile.TarFile], None] = lambda _: None) -> Path:
    """Make the file of a release as RabbitMQ's names it, below a folder that is served."""
    file = folder / "releases" / "download" / f"v{version}" / f"rabbitmq-server-generic-unix-{version}.tar.xz"
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w:xz") as content:
        for name in ("sbin/rabbitmq-server", f"plugins/rabbit-{version}/x"):
            content.addfile(tarfile.TarInfo(f"rabbitmq_server-{version}/{name}"), io.BytesIO())
        add(content)
    return file


def published(
    folder: Path, version: str, signer: Signer, add: Callable[[tarfile.TarFile], None] = lambda _: None
) -> Path:
    file = archive(folder, version, add)
    signer.sign(file)
    (folder / "key.asc").write_text(signer.key())
    return file


def test_a_release_is_verified_and_unpacked_once(served: tuple[Path, Source], signer: Signer, tmp_path: Path) -> None:
    folder, source = served
    published(folder, "4.2.2", signer)
    provide = partial(releases.provide, "4.2.2", tools=tmp_path / "tools", source=source, signer=signer.fingerprint)
    there = provide()
    assert there == tmp_path / "tools" / "releases" / "rabbitmq_server-4.2.2"
    assert (there / "sbin" / "rabbitmq-server").is_file()
    shutil.rmtree(folder / "releases")
    assert provide() == there
    assert [path.name for path in there.parent.iterdir()] == ["rabbitmq_server-4.2.2"]


def test_what_another_key_has_signed_is_refused(served: tuple[Path, Source], signer: Signer, tmp_path: Path) -> None:
    folder, source = served
    published(folder, "4.2.2", signer)
    with pytest.raises(Failed, match=f"is signed by {signer.fingerprint}, and {releases.SIGNER} is expected"):
        releases.provide("4.2.2", tools=tmp_path, source=source)
    assert list((tmp_path / "releases").iterdir()) == []


def test_what_was_changed_after_it_was_signed_is_refused(
    served: tuple[Path, Source], signer: Signer, tmp_path: Path
) -> None:
    folder, source = served
    with published(folder, "4.2.2", signer).open("ab") as file:
        file.write(b"more")
    with pytest.raises(Failed, match="BAD signature"):
        releases.provide("4.2.2", tools=tmp_path, source=source, signer=signer.fingerprint)


def test_a_signature_by_a_key_that_is_not_published_is_refused(
    served: tuple[Path, Source], signer: Signer, tmp_path: Path
) -> None:
    folder, source = served
    published(folder, "4.2.2", signer)
    (folder / "key.asc").write_text("no key")
    with pytest.raises(Failed):
        releases.provide("4.2.2", tools=tmp_path, source=source, signer=signer.fingerprint)


def link(name: str, to: str) -> Callable[[tarfile.TarFile], None]:
    def add(content: tarfile.TarFile) -> None:
        made = tarfile.TarInfo(name)
        made.type, made.linkname = tarfile.SYMTYPE, to
        content.addfile(made)

    return add


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("rabbitmq_server-4.2.2/sbin/rabbitmqctl", "../../elsewhere"),
        ("rabbitmq_server-4.2.2/sbin/rabbitmqctl", "/bin/sh"),
        ("rabbitmq_server-4.2.2/../elsewhere", "x"),
        ("elsewhere", "x"),
    ],
)
def test_an_archive_that_writes_elsewhere_is_refused(
    name: str, to: str, served: tuple[Path, Source], signer: Signer, tmp_path: Path
) -> None:
    folder, source = served
    published(folder, "4.2.2", signer, link(name, to))
    with pytest.raises(Failed, match="which is not within rabbitmq_server-4"):
        releases.provide("4.2.2", tools=tmp_path, source=source, signer=signer.fingerprint)


def test_a_link_within_is_kept(served: tuple[Path, Source], signer: Signer, tmp_path: Path) -> None:
    folder, source = served
    published(folder, "4.2.2", signer, link("rabbitmq_server-4.2.2/sbin/rabbitmqctl", "../sbin/rabbitmq-server"))
    there = releases.provide("4.2.2", tools=tmp_path, source=source, signer=signer.fingerprint)
    assert (there / "sbin" / "rabbitmqctl").resolve() == (there / "sbin" / "rabbitmq-server").resolve()


def test_a_version_that_is_not_there_is_reported_with_its_address(
    served: tuple[Path, Source], tmp_path: Path, message: Messages
) -> None:
    _, source = served
    with message.of(Failed, hide={r":\d+": ":PORT"}):
        releases.provide("4.2.99", tools=tmp_path, source=source)


def pages(folder: Path, *tags: list[str]) -> None:
    for number, page in enumerate([*tags, []], 1):
        found = [{"tag_name": tag, "prerelease": "-" in tag} for tag in page]
        (folder / f"page-{number}.json").write_text(json.dumps(found))


def test_a_series_is_its_newest_release(served: tuple[Path, Source], message: Messages) -> None:
    folder, source = served
    pages(folder, ["v4.4.0-rc.1", "v4.3.10", "v4.2.9", "v4.3.9", "v4.20.1"], ["v4.2.2", "v3.13.7"])
    assert releases.newest("4.3", source=source) == "4.3.10"
    assert releases.newest("4.2", source=source) == "4.2.9"
    assert releases.newest("3.13", source=source) == "3.13.7"
    with message.of(Failed, hide={r":\d+": ":PORT"}):
        releases.newest("4.4", source=source)


def test_a_mirror_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(releases.VARIABLE, "http://mirror.example/rabbitmq/")
    here = Source.here()
    assert here.listed == "http://mirror.example/rabbitmq/releases"
    assert here.key == "http://mirror.example/rabbitmq/rabbitmq-release-signing-key.asc"


@pytest.mark.brokers
def test_a_release_forms_a_cluster_on_an_erlang_at_home(
    served: tuple[Path, Source], signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a home stands in for that of a release: they are laid out alike."""
    if not TRIXIE.is_there():
        pytest.skip("the home of 4.0 is not there")
    monkeypatch.delenv("RABBITMQ_HOME")
    home = find_broker(TRIXIE.place())
    folder, source = served
    file = folder / "releases" / "download" / f"v{home.version}" / f"rabbitmq-server-generic-unix-{home.version}.tar.xz"
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w:xz", preset=0) as content:
        content.add(home.home, f"rabbitmq_server-{home.version}")
    signer.sign(file)
    (folder / "key.asc").write_text(signer.key())
    unpacked = releases.provide(home.version, tools=tmp_path, source=source, signer=signer.fingerprint)
    found = find_broker(unpacked, environ={"PATH": "/usr/bin:/bin"})
    assert found.erlang_bin == home.erlang_bin
    with LocalCluster.form(topology_catalogue.load("one_node"), broker=found) as cluster:
        overview = cluster.api(cluster.topology.node_names[0]).overview()
    assert (overview["rabbitmq_version"], overview["erlang_version"].partition(".")[0]) == (home.version, "27")
