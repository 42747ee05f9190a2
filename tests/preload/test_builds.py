"""Builds of the library: where they are, and that every target compiles with the compiler that set-up fetches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.setup import disk_faults_build
from rabbitmq_resilience.sut.preload import library
from rabbitmq_resilience.tools.distributions import ToolMissingError
from tests.preload.sequences import Built, Disk

TARGETS = [
    library.target_of(libc, machine=machine) for machine in library.MACHINES for libc in (library.GLIBC, library.MUSL)
]


def test_targets_are_named_as_the_compiler_knows_them() -> None:
    assert library.target_of(machine="AMD64") == "x86_64-linux-gnu.2.17"
    assert library.target_of(library.MUSL, machine="arm64") == "aarch64-linux-musl"
    with pytest.raises(ToolMissingError, match="x86_64 and aarch64 only"):
        library.target_of(machine="riscv64")


def test_without_a_build_or_a_compiler_set_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "COMPILER", tmp_path / "zig")
    for work in (library.find_build, library.build):
        with pytest.raises(ToolMissingError, match=library.SET_UP):
            work(TARGETS[0], into=tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_other_sources_have_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = library.folder_of("a", tmp_path)
    assert folder == library.folder_of("a", tmp_path) != library.folder_of("b", tmp_path)
    monkeypatch.setattr(library, "SOURCES", tmp_path)
    assert library.folder_of("a", tmp_path) != folder


def test_set_up_removes_former_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "BUILDS", tmp_path)
    (tmp_path / "former").mkdir()
    kept = tmp_path / library.folder_of(TARGETS[0], tmp_path).name
    kept.mkdir()
    monkeypatch.setattr(library, "folder_of", lambda _: kept)
    disk_faults_build.remove_old_builds()
    assert [*tmp_path.iterdir()] == [kept]


@pytest.mark.installed
def test_every_target_compiles_and_this_machine_s_works(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "COMPILER", tmp_path / "zig")
    disk_faults_build.fetch_compiler()
    for target in TARGETS:
        made = library.build(target, tmp_path / "builds")
        assert made.library.stat().st_size < 200_000
        assert made.program.stat().st_size < 400_000
    native = library.find_build(library.target_of(), into=tmp_path / "builds")
    disk = Disk(Built(native.library, native.program, built.programs), tmp_path / "root", tmp_path / "state")
    disk.root.mkdir()
    disk.call("prepare")
    disk.play(["open 1 wc file", "fsync 1", "write 1 0 9 1", "die"])
    assert disk.cut()["bytes"] == 9
    said = subprocess.run([native.program, "--help"], env={"PATH": os.defpath}, capture_output=True, check=True)
    assert b"disk-faults cut STATE" in said.stdout
