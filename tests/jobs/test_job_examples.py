"""The examples of docs/kubernetes for Jobs: they name each other rightly, and call what is there."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.command import COMMANDS
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.locations import CHECKOUT

assert CHECKOUT is not None
EXAMPLES = CHECKOUT / "docs" / "kubernetes"
PLAYED = ["job.yaml", "nightly.yaml"]


def documents(name: str) -> dict[str, Any]:
    found = yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8"))
    return {document["kind"]: document for document in found}


def spec_of(name: str) -> Any:
    """Of the Job that it is, or makes."""
    found = documents(name)
    return found["Job"]["spec"] if "Job" in found else found["CronJob"]["spec"]["jobTemplate"]["spec"]


def test_what_they_play_is_accepted_by_the_cluster_that_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANY", "any")
    data = documents("scenarios.yaml")["ConfigMap"]["data"]
    for name, text in data.items():
        for secret in ("user", "password"):
            text = text.replace(f"file: /credentials/{secret}", "env: ANY")  # noqa: PLW2901 - the same text
        (tmp_path / name).write_text(text, encoding="utf-8")
    cluster = tmp_path / "cluster.yaml"
    faults = sorted(tmp_path.glob("*.fault.yaml"))
    assert faults != []
    for path in faults:
        fitted(fault_file.load(path, driver="attached"), cluster)
    pods = (EXAMPLES / "cluster.yaml").read_text(encoding="utf-8")
    assert [node.name for node in load(cluster).stated.nodes if node.name not in pods] == []


@pytest.mark.parametrize("name", PLAYED)
def test_they_name_each_other(name: str) -> None:
    spec = spec_of(name)["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (container,) = spec["containers"]
    assert volumes["scenarios"]["configMap"]["name"] == documents("scenarios.yaml")["ConfigMap"]["metadata"]["name"]
    text = (EXAMPLES / "scenarios.yaml").read_text(encoding="utf-8")
    assert f"create secret generic {volumes['credentials']['secret']['secretName']} " in text
    assert spec["serviceAccountName"] == documents("rights.yaml")["ServiceAccount"]["metadata"]["name"]
    claim = documents(name)["PersistentVolumeClaim"]["metadata"]["name"]
    assert claim in {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes.values()}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()


@pytest.mark.parametrize("name", PLAYED)
def test_they_end_and_are_not_played_again_or_as_root(name: str) -> None:
    spec = spec_of(name)
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    limits_min = [float(one.partition("=")[2]) for one in container["command"] if one.startswith("--limit-min=")]
    assert spec["activeDeadlineSeconds"] > max([0.0, *limits_min]) * 60 + 120
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", PLAYED)
def test_they_call_what_is_there(name: str) -> None:
    (container,) = spec_of(name)["template"]["spec"]["containers"]
    program, *arguments = container["command"]
    assert program == "pytest" or arguments[0] in COMMANDS
    known = {f"--resilience-{option.name}" for option in options.OPTIONS}
    given = {one.partition("=")[0] for one in arguments if one.startswith("--resilience-")}
    assert given <= known
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    paths = [one.rpartition("=")[2] for one in arguments if one.rpartition("=")[2].startswith("/")]
    assert [path for path in paths if not any(path == at or path.startswith(f"{at}/") for at in mounted)] == []


def test_a_night_is_never_next_to_another_one() -> None:
    assert documents("nightly.yaml")["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"


def test_who_makes_jobs_has_the_rights_that_are_asked_for_and_no_more() -> None:
    job = pytest.importorskip("rabbitmq_resilience.extensions.attached.kubernetes.job")
    rules = documents("job-rights.yaml")["Role"]["rules"]
    given = {(verb, name) for rule in rules for name in rule["resources"] for verb in rule["verbs"]}
    asked = {(verb, f"{resource}/{sub}" if sub else resource) for verb, resource, sub in job.WANTED}
    unasked = {("update", "jobs/finalizers"), ("get", "pods/exec"), ("list", "events")}
    assert given == asked | unasked


def test_the_image_has_all_that_the_wheel_is_made_of() -> None:
    assert CHECKOUT is not None
    text = (EXAMPLES / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = {word for line in text.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]}
    assert {*wheel["packages"], *wheel["force-include"]} <= copied
    assert "USER 10001" in text


def test_what_the_image_takes_is_there_under_that_name() -> None:
    """No test builds the image, which takes an engine and a network."""
    text = (EXAMPLES / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    (program,) = re.findall(r"python -c\s+'([^']+)'", text)
    tree = ast.parse(program)
    modules = {
        alias.name: importlib.import_module(f"{node.module}.{alias.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    used = [
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    assert len(used) == 2
    assert all(hasattr(modules[name], attribute) for name, attribute in used)
