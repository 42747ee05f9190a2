"""Download RabbitMQ's own releases to run as processes: the generic build of any version, verified by its signature.

An address in RABBITMQ_RESILIENCE_RELEASES replaces GitHub's: a mirror with files of the same names at
``/releases``, ``/releases/download/v4.2.2/rabbitmq-server-generic-unix-4.2.2.tar.xz`` (with ``.asc``) and
``/rabbitmq-release-signing-key.asc``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, ProgressLine, megabytes, run
from rabbitmq_resilience.tools.tar_files import extract

#: The fingerprint of RabbitMQ's release signing key (RabbitMQ, "Verifying RabbitMQ Packages with GnuPG", read in
#: November 2026).
SIGNER = "0A9AF2115F4687BD29803A206B73A36E6026DFCA"
VARIABLE = "RABBITMQ_RESILIENCE_RELEASES"

_PAGES_MAX = 10
_CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 30
#: The largest accepted download; 4.2.2 has 17 MB.
_SIZE_MAX_BYTES = 200_000_000


@dataclass(frozen=True)
class Source:
    """The addresses of releases: their list, their files, and the key that signs them."""

    listed: str
    files: str
    key: str

    @classmethod
    def here(cls) -> Source:
        """Return GitHub, or the mirror that the environment names."""
        mirror = os.environ.get(VARIABLE, "").rstrip("/")
        if mirror:
            files = f"{mirror}/releases/download"
            return cls(f"{mirror}/releases", files, f"{mirror}/rabbitmq-release-signing-key.asc")
        return cls(
            "https://api.github.com/repos/rabbitmq/rabbitmq-server/releases",
            "https://github.com/rabbitmq/rabbitmq-server/releases/download",
            "https://github.com/rabbitmq/signing-keys/releases/download/3.0/rabbitmq-release-signing-key.asc",
        )


def place(version: str, tools: Path = TOOLS) -> Path:
    """Return the folder into which a release is unpacked."""
    return tools / "releases" / f"rabbitmq_server-{version}"


def newest(series: str, *, source: Source | None = None) -> str:
    """Return the newest patch release of a series such as ``4.2``. Raise ``Failed`` if the list has none."""
    source = source or Source.here()
    pattern = re.compile(rf"v({re.escape(series)}\.\d+)")
    for number in range(1, _PAGES_MAX + 1):
        tags = [str(release.get("tag_name")) for release in _page(f"{source.listed}?per_page=100&page={number}")]
        found = [match[1] for match in map(pattern.fullmatch, tags) if match]
        if found:  # the list begins with the newest release, and a page holds all of a series or its end
            return max(found, key=lambda version: int(version.rpartition(".")[2]))
        if not tags:
            break
    raise Failed(f"{source.listed} lists no release of {series}")


def provide(version: str, *, tools: Path = TOOLS, source: Source | None = None, signer: str = SIGNER) -> Path:
    """Return the folder of a release; download, verify and unpack the release if the folder does not exist.

    Raise ``Failed`` if that fails."""
    folder = place(version, tools)
    if folder.is_dir():
        return folder
    source = source or Source.here()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as scratch:
        archive, signature, key = (Path(scratch) / name for name in ("archive.tar.xz", "archive.asc", "key.asc"))
        address = f"{source.files}/v{version}/rabbitmq-server-generic-unix-{version}.tar.xz"
        _fetch(address, archive, doing=f"downloading RabbitMQ {version}")
        _fetch(f"{address}.asc", signature, doing="downloading its signature")
        _fetch(source.key, key, doing="downloading RabbitMQ's signing key")
        verify(archive, signature, key, signer=signer)
        _unpack(archive, Path(scratch), folder)
    return folder


def verify(archive: Path, signature: Path, key: Path, *, signer: str = SIGNER) -> None:
    """Check that the key with the fingerprint ``signer`` has signed the archive. Raise ``Failed`` if not.

    The armoured ``key`` may come from any place: the fingerprint proves whose key it is.
    """
    gpgv = shutil.which("gpgv")
    if gpgv is None:
        raise Failed("gpgv is missing, so the release could not be verified (Debian, Ubuntu: the package gpgv)")
    ring = key.with_suffix(".gpg")
    ring.write_bytes(_dearmoured(key.read_text(encoding="utf-8", errors="replace")))
    said = run([gpgv, "--status-fd", "1", "--keyring", ring, signature, archive], doing="verifying its signature")
    signers = [line.split()[-1] for line in said.splitlines() if line.startswith("[GNUPG:] VALIDSIG ")]
    if signers != [signer]:
        raise Failed(f"{archive.name} is signed by {', '.join(signers) or 'no key'}, and {signer} is expected")


def _dearmoured(text: str) -> bytes:
    """Return the keys of armoured text in binary form; gpgv reads no other form (RFC 9580, 6.2)."""
    keys, body = b"", ""
    inside = headers = False
    for line in map(str.strip, text.splitlines()):
        if line == "-----BEGIN PGP PUBLIC KEY BLOCK-----":
            inside = headers = True
        elif line == "-----END PGP PUBLIC KEY BLOCK-----":
            keys, body, inside = keys + base64.b64decode(body), "", False
        elif headers:
            headers = line != ""
        elif inside and not line.startswith("="):  # the last line is a checksum
            body += line
    return keys


def _page(address: str) -> list[dict[str, object]]:
    try:
        with _opened(address) as answer:
            found = json.load(answer)
    except ValueError as error:
        raise Failed(f"{address} is no list of releases: {error}") from error
    return [release for release in found if isinstance(release, dict) and not release.get("prerelease")]


def _opened(address: str) -> IO[bytes]:
    try:
        # The address is a constant of this module, or the user names it.
        answer: IO[bytes] = urllib.request.urlopen(address, timeout=_TIMEOUT_S)  # noqa: S310
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise Failed(f"{address}: {error}") from error
    return answer


def _fetch(address: str, into: Path, *, doing: str) -> None:
    line = ProgressLine(doing, out=sys.__stdout__)
    try:
        with _opened(address) as answer, into.open("wb") as out:
            while chunk := answer.read(_CHUNK_BYTES):
                out.write(chunk)
                line.show(megabytes(out.tell()))
                if out.tell() > _SIZE_MAX_BYTES:
                    raise Failed(f"{address} has over {megabytes(_SIZE_MAX_BYTES)}, more than any release")
    except OSError as error:
        raise Failed(f"{address}: {error}") from error
    finally:
        line.end()


def _unpack(archive: Path, scratch: Path, folder: Path) -> None:
    """Unpack the archive, which must hold exactly this one folder. Raise ``Failed`` if it does not."""
    try:
        with tarfile.open(archive) as content:
            extract(content, scratch, list(_within(content, folder.name)))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Failed(f"{archive.name} cannot be unpacked: {error}") from error
    unpacked = scratch / folder.name
    if not (unpacked / "sbin" / "rabbitmq-server").is_file():
        raise Failed(f"the archive holds no {folder.name}/sbin/rabbitmq-server")
    unpacked.rename(folder)


def _within(content: tarfile.TarFile, folder: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of the archive. Raise ``Failed`` if one is outside of ``folder``, or links to the outside."""
    for member in content:
        targets = [member.name]
        if member.issym():
            targets.append(os.path.join(os.path.dirname(member.name), member.linkname))  # noqa: PTH118, PTH120 - no file
        elif member.islnk():
            targets.append(member.linkname)
        if member.isdev() or any(Path(os.path.normpath(target)).parts[:1] != (folder,) for target in targets):
            raise Failed(f"the archive holds {member.name}, which is not within {folder}")
        yield member
