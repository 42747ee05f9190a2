"""Provide Toxiproxy: the server on PATH, otherwise one built from its pinned source, otherwise its pinned release."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tarfile
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_toxiproxy
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, ProgressLine, megabytes, run

VERSION = "2.12.0"
PROGRAM = "toxiproxy-server"
PLACE = TOOLS / "bin" / PROGRAM
STAMP = TOOLS / "bin" / "toxiproxy-version"
MODULE = "github.com/Shopify/toxiproxy/v2"
RELEASE = f"https://github.com/Shopify/toxiproxy/releases/download/v{VERSION}/toxiproxy_{VERSION}_{{platform}}.tar.gz"

#: SHA-256 of the archives. Two public projects that use the release record them, independently of each other.
RELEASE_SHA256 = {
    "linux_amd64": "65e042d3fc2290c099527bc506446a6fd863a09f113b8944b636ece70221c2b3",
    "linux_arm64": "ab417dafc77ae8b54ec8461cc5da5180d0465a61dcbda86c72da72ee4ab843b7",
    "darwin_amd64": "52ac1f99d7204b4b523f910b791bc86318b50ef94822c79a6157606704003ced",
    "darwin_arm64": "cece3905c06ad84d6b3bb4cd024c344e6466736b2a8cbaf9ef4fe45e62aba9b2",
}

_MISSING = """\
Toxiproxy {version} is needed for links between brokers, and could not be provided:
{tried}
How to provide it:
  macOS       brew install toxiproxy
  elsewhere   put its program toxiproxy-server on PATH, or name it in TOXIPROXY_SERVER, or install Go
              (1.23 or newer; a module proxy of your own goes in GOPROXY)"""

_CHUNK_BYTES = 1 << 16
_TIMEOUT_S = 30


def found() -> str | None:
    """Return the server that a run would use now, or None if there is none.

    Raise ``Missing`` if the environment names a server that cannot be used."""
    try:
        server = find_toxiproxy(tools=TOOLS)
    except ToolMissingError as error:
        if os.environ.get("TOXIPROXY_SERVER"):
            raise Missing(str(error)) from error
        return None
    if server == PLACE and not _in_place():
        return None
    return within_root(server)


def _in_place() -> bool:
    return PLACE.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == VERSION


def make() -> str:
    """Build or download the server; return where it is. Raise ``Missing`` if both fail."""
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    return first_that_works((build, download))


def linux_program() -> Path:
    """Return a server that runs in an empty container; make it if necessary.

    It is always our own, which needs no libraries, not the one on PATH. Raise ``Failed`` on other systems than Linux.
    """
    if platform.system() != "Linux":
        raise Failed("Toxiproxy for a container is built on Linux only")
    if not _in_place():
        make()
    return PLACE


def first_that_works(sources: Sequence[Callable[[], None]]) -> str:
    """Use the first source that succeeds; return where the server is.

    Raise ``Missing`` with the reasons of all sources if all fail."""
    tried = [f"  {PROGRAM} on PATH: not found"]
    for source in sources:
        try:
            source()
        except Failed as error:
            tried.append("  " + str(error).replace("\n", "\n    "))
        else:
            STAMP.write_text(VERSION, encoding="utf-8")
            return within_root(PLACE)
    raise Missing(_MISSING.format(version=VERSION, tried="\n".join(tried)))


def build() -> None:
    """Build the server by ``go install``. It uses its own caches of some 270 MB, which are removed afterwards."""
    go = shutil.which("go")
    if go is None:
        raise Failed("go install: no go on PATH")
    scratch = TOOLS / "go"
    env = {
        **os.environ,
        "GOPATH": str(scratch / "path"),
        "GOCACHE": str(scratch / "cache"),
        "GOBIN": str(scratch / "bin"),
        "GOFLAGS": "-modcacherw",
        "CGO_ENABLED": "0",
    }
    try:
        flags = ["-trimpath", f"-ldflags=-s -w -X {MODULE}.Version={VERSION}"]
        command = [go, "install", *flags, f"{MODULE}/cmd/server@v{VERSION}"]
        run(command, doing=f"building Toxiproxy {VERSION}", env=env, cwd=PLACE.parent)
        (scratch / "bin" / "server").replace(PLACE)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def release_platform() -> str:
    """Return the name of this platform as the names of the release's files have it, such as ``linux_amd64``."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}_{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }"


def download() -> None:
    """Download the release for this platform. Raise ``Failed`` if that fails or it has not the pinned checksum."""
    name = release_platform()
    if name not in RELEASE_SHA256:
        raise Failed(f"release download: no checksum is known for {name}, and unverified files are not used")
    archive = TOOLS / "toxiproxy.tar.gz"
    try:
        _fetch(RELEASE.format(platform=name), archive)
        extract(archive, sha256=RELEASE_SHA256[name])
    finally:
        archive.unlink(missing_ok=True)


def _fetch(url: str, into: Path) -> None:
    line = ProgressLine(f"downloading Toxiproxy {VERSION}")
    try:
        # The address is a constant of this module, and https.
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, into.open("wb") as out:  # noqa: S310
            total = int(answer.headers.get("Content-Length", 0))
            while chunk := answer.read(_CHUNK_BYTES):
                out.write(chunk)
                line.show(f"{megabytes(out.tell())} of {megabytes(total)}")
    except OSError as error:
        raise Failed(f"release download: {error}") from error
    finally:
        line.end()


def extract(archive: Path, *, sha256: str) -> None:
    """Put the server from ``archive`` in its place. Raise ``Failed`` if the archive has not that checksum."""
    got = hashlib.sha256(archive.read_bytes()).hexdigest()
    if got != sha256:
        raise Failed(f"release download: refused, its SHA-256 is {got} and {sha256} is expected")
    with tarfile.open(archive) as content:
        member = content.extractfile(PROGRAM)
        if member is None:
            raise Failed(f"release download: the archive holds no {PROGRAM}")
        PLACE.write_bytes(member.read())
    PLACE.chmod(0o755)


STEP = SetupTask("Toxiproxy", found, make)
