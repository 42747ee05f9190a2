"""Download and unpack packages of a Debian-like distribution without installing them: no root, no change to the system.

apt checks what it downloads against the distribution's signed lists. If the system has no lists, or lists so old that
the packages are gone, fresh ones are read into a folder of our own.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, megabytes, run

#: The keys of Debian's releases; every Debian has this file.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_FIELDS = "$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"

_DEPENDS = ("--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces")
_URI_LINE = re.compile(r"^'[^']*' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """A package file as apt announces it."""

    file: str
    size_bytes: int
    sha256: str


def available() -> bool:
    return all(shutil.which(program) for program in ("apt-get", "apt-cache", "dpkg"))


def unpack(package: str, *, wanted: str, into: Path, release: str | None = None) -> None:
    """Download ``package`` and those of its dependencies whose name matches ``wanted``; unpack them into ``into``.

    ``release``: a release of Debian, such as ``trixie``; None for this system's own sources. Raise ``Failed`` if
    neither the system's package lists nor fresh ones lead to the files.
    """
    scratch = TOOLS / "packages"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        if release is None:
            try:
                files = _download(package, wanted=wanted, apt=_apt(scratch), into=scratch)
            except Failed:
                files = _download_by_fresh_lists(package, wanted=wanted, into=scratch)
        else:
            files = _download_by_fresh_lists(package, wanted=wanted, into=scratch, release=release)
        for file in files:
            run(["dpkg", "-x", file, into], doing=f"unpacking {file.name.partition('_')[0]}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def provide(package: str, *, wanted: str, place: Path, prove: Callable[[Path], object]) -> None:
    """Unpack ``package`` as ``unpack`` does, into another folder, which replaces ``place`` once ``prove`` accepts it.

    Raise ``Failed`` if unpacking or ``prove`` fails; then nothing is left, and ``place`` stays the same.
    """
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        unpack(package, wanted=wanted, into=partial)
        prove(partial)
    except Failed:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)


def _download_by_fresh_lists(package: str, *, wanted: str, into: Path, release: str | None = None) -> list[Path]:
    apt = _apt(into, lists=into / "lists", source=None if release is None else source_of(release))
    whose = "the distribution's" if release is None else f"Debian {release}'s"
    run(["apt-get", "update"], doing=f"reading {whose} package lists", env=apt)
    return _download(package, wanted=wanted, apt=apt, into=into)


def _apt(folder: Path, *, lists: Path | None = None, source: str | None = None) -> dict[str, str]:
    """Return the environment in which apt uses the system's settings, but neither its hooks nor its folders.

    The hooks (``Post-Invoke`` and the like) clean caches and wake services. As root, apt would switch to a user who may
    not write into the checkout. If ``source``, a line of apt's sources, is given, apt uses only that: neither the
    system's sources, nor the list of installed packages.
    """
    system = run(["apt-config", "dump"], doing="reading apt's settings").splitlines()
    cache = folder / "cache"
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    ours = {"Dir::Etc::main": "/dev/null", "Dir::Etc::parts": "/dev/null", "Dir::Cache": cache}
    ours |= {"APT::Sandbox::User": "root"}
    if lists is not None:
        (lists / "partial").mkdir(parents=True)
        ours |= {"Dir::State::lists": lists, "Acquire::Languages": "none"}
    if source is not None:
        sources = folder / "sources.list"
        sources.write_text(f"{source}\n", encoding="utf-8")
        ours |= {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null"}
        ours |= {"Dir::State::status": "/dev/null"}
        if "sid" in source.split():
            ours |= {"Acquire::Check-Valid-Until": "false"}  # a mirror may be older than the few days that it is valid
    settings = [line for line in system if "-Invoke" not in line]
    settings += [f'{name} "{value}";' for name, value in ours.items()]
    file = folder / "apt.conf"
    file.write_text("\n".join(settings) + "\n", encoding="utf-8")
    return {**os.environ, "APT_CONFIG": str(file)}


def _download(package: str, *, wanted: str, apt: Mapping[str, str], into: Path) -> list[Path]:
    names = _closure(package, wanted=wanted, apt=apt)
    uris = ["apt-get", "--print-uris", "download", *names]
    packages = parse_uris(run(uris, doing="looking up packages", cwd=into, env=apt))
    if len(packages) != len(names):
        raise Failed(f"apt announced {len(packages)} files with a SHA-256 for {len(names)} packages")
    total_bytes = sum(p.size_bytes for p in packages)

    def done() -> str:
        return f"{megabytes(sum(f.stat().st_size for f in into.glob('*.deb')))} of {megabytes(total_bytes)}"

    doing = f"downloading {len(packages)} package{'s' if len(packages) > 1 else ''}"
    print(f"      {doing}, {megabytes(total_bytes)}", flush=True)
    run(["apt-get", "download", *names], doing=doing, cwd=into, env=apt, done=done)
    return [_checked(into, p) for p in packages]


def _closure(package: str, *, wanted: str, apt: Mapping[str, str]) -> list[str]:
    listing = run(["apt-cache", "depends", *_DEPENDS, package], doing="resolving dependencies", env=apt)
    names = sorted({line for line in listing.splitlines() if re.fullmatch(wanted, line)})
    if package not in names:
        raise Failed(f"the package lists hold no {package}")
    return names


def mirror(targets: str, *, own_release: str | None) -> str:
    """Return the address of Debian's archive from ``targets``, apt's list of targets.

    Each line has an origin, a release, a component and an address. Before the first ``apt-get update`` apt knows no
    origin; then return the address of ``own_release``, this Debian's release. Raise ``Failed`` if there is none.
    """
    unknown_origin = _FIELDS.partition("|")[0]
    by_origin: dict[str, str] = {}
    for line in targets.splitlines():
        origin, release, component, address = line.split("|")
        if component != "main" or "-" in release:
            continue
        if origin == "Debian" or (origin == unknown_origin and release == own_release):
            by_origin.setdefault(origin, address)
    if not by_origin:
        raise Failed("apt knows no mirror of Debian: /etc/apt/sources.list(.d) names none for a release's main")
    return by_origin.get("Debian") or by_origin[unknown_origin]


def source_of(release: str) -> str:
    """Return the line of apt's sources for ``release``, such as ``trixie``, at the mirror that this machine uses.

    Raise ``Failed`` if no mirror of Debian, or no key of its releases, is known here.
    """
    if not KEYRING.exists():
        raise Failed(f"{KEYRING} is missing (package debian-archive-keyring), so packages could not be verified")
    return f"deb [signed-by={KEYRING}] {_mirror()} {release} main"


@functools.cache
def _mirror() -> str:
    """Return the mirror of Debian that this machine uses; apt is asked once for all homes."""
    targets = run(["apt-get", "indextargets", "--format", _FIELDS, "Created-By: Packages"], doing="asking for mirrors")
    try:
        return mirror(targets, own_release=own_release())
    except Failed:
        # Before the first update apt may list no target at all, but it prints what it would download.
        asked = run(["apt-get", "update", "--print-uris"], doing="asking for mirrors")
        if address := mirror_asked(asked, own_release=own_release()):
            return address
        raise


def mirror_asked(uris: str, *, own_release: str | None) -> str:
    """Return the address of ``own_release`` in the output of ``apt-get update --print-uris``; empty if not found."""
    found = re.search(rf"^'([^']+/)dists/{re.escape(own_release or '')}/InRelease'", uris, re.MULTILINE)
    return found[1] if found else ""


def own_release() -> str | None:
    """Return the code name of this Debian, such as ``bookworm``, or None on another system."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    return release.get("VERSION_CODENAME") if release.get("ID") == "debian" else None


def parse_uris(text: str) -> list[Package]:
    """Return the files that the output of ``apt-get --print-uris download`` announces."""
    return [Package(m["file"], int(m["size"]), m["sha256"]) for m in _URI_LINE.finditer(text)]


def _checked(folder: Path, package: Package) -> Path:
    path = folder / package.file
    with path.open("rb") as content:
        got = hashlib.file_digest(content, "sha256").hexdigest()
    if got != package.sha256:
        raise Failed(f"{package.file} has SHA-256 {got}, the distribution's lists say {package.sha256}")
    return path
