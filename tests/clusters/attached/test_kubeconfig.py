"""Which cluster of Kubernetes is meant, whatever becomes of files and environments later."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.extensions.attached.offers import Kubernetes

pytest.importorskip("kubernetes")

from rabbitmq_resilience.extensions.attached.kubernetes.pods import configured, resolved

ELSEWHERE = Path("/elsewhere")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | None], Path]:
    """Writes a file with two contexts, and which of them is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def write(name: str, current: str | None) -> Path:
        contexts = [{"name": each, "context": {"cluster": each, "user": "u"}} for each in ("staging", "production")]
        clusters = [{"name": each, "cluster": {"server": f"https://{each}"}} for each in ("staging", "production")]
        users = [{"name": "u", "user": {}}]
        kinds = {"apiVersion": "v1", "kind": "Config"}
        told = {**kinds, "contexts": contexts, "clusters": clusters, "users": users, "current-context": current}
        (tmp_path / name).write_text(yaml.safe_dump(told))
        return tmp_path / name

    return write


def test_a_file_and_its_context_are_kept(
    written: Callable[[str, str | None], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written("kube.yaml", "staging")
    monkeypatch.setenv("KUBECONFIG", "kube.yaml")
    found = resolved(Kubernetes(), ELSEWHERE)
    assert (found.kubeconfig, found.context) == (file, "staging")
    named = resolved(Kubernetes(kubeconfig=Path("kube.yaml"), context="production"), file.parent)
    assert (named.kubeconfig, named.context) == (file, "production")
    monkeypatch.setenv("KUBECONFIG", "nowhere.yaml")
    written("kube.yaml", "production")
    assert configured(found, ELSEWHERE).host == "https://staging"


def test_several_files_are_kept_and_the_first_context_as_by_kubectl(
    written: Callable[[str, str | None], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [written("none.yaml", None), written("first.yaml", "staging"), written("last.yaml", "production")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["none.yaml", "", "first.yaml", "nowhere.yaml", "last.yaml"]))
    found = resolved(Kubernetes(), ELSEWHERE)
    assert found.context == "staging"
    assert [Path(each) for each in str(found.kubeconfig).split(os.pathsep) if "nowhere" not in each] == files
    assert configured(Kubernetes(), ELSEWHERE).host == "https://staging"
    monkeypatch.setenv("KUBECONFIG", "last.yaml")
    assert configured(found, ELSEWHERE).host == "https://staging"
