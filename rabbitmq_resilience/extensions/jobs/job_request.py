"""Check what a Job is to play before anything is made, and write its files as the Job will find them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode, forwarded_port
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.extensions.attached.on_clusters import check, fitted
from rabbitmq_resilience.extensions.jobs.paths import CA, CREDENTIALS
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.errors import NotPlayableError
from rabbitmq_resilience.model.yaml_files import FileRefusedError
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.application_model import ApplicationWorkload

#: A ConfigMap holds up to one mebibyte.
_BYTES_MAX = 1_000_000
_SUFFIXES = (".fault.yaml", ".fault.yml")
_SCHEMES = {"amqp": "amqp", "management": "http", "prometheus": "http"}


class OrderError(Exception):
    """The order is refused, and nothing was made; the text says what to write instead."""


@dataclass(frozen=True)
class JobRequest:
    """What a Job is to play. ``files``: texts by their names in the Job. ``scenarios``: the names of the fault files
    among them, in order. ``left_out``: a text for each fault file that the cluster cannot play."""

    known: KnownCluster
    files: Mapping[str, str]
    scenarios: Sequence[str]
    left_out: Sequence[str]

    @property
    def offer(self) -> Kubernetes:
        found = self.known.stated.offers.kubernetes
        assert found is not None, "ordered() requires it"
        return found

    @property
    def access(self) -> Access:
        return self.known.access


def ordered(cluster: Path, paths: Sequence[Path]) -> JobRequest:
    """Return the order for these ``paths``: fault files, and folders of them.

    Raise OrderError if a Job cannot play them, and FileRefusedError, with line and field, if a file is wrong."""
    known = load(cluster)
    _require_kubernetes(known)
    for name, secret in (("user", known.access.user), ("password", known.access.password)):
        if len(secret.splitlines()) != 1:
            raise OrderError(f"{cluster}: {name}: must be exactly one line, as the Job reads one line of a file")
    scenarios: dict[str, str] = {}
    left_out: list[str] = []
    for path in _fault_files(paths):
        scenario = fault_file.load(path, driver="attached")
        check(scenario, cluster, source=str(path))
        if scenario.rule_files:
            raise OrderError(f"{path}: rules: a Job does not take files of rules along; play it from here")
        if isinstance(scenario.workload, ApplicationWorkload):
            raise OrderError(f"{path}: workload: a Job does not take your program along; play it from here")
        try:
            fitted(scenario, cluster)
        except NotPlayableError as error:
            left_out.append(f"{path}: {error}")
        scenarios[_name(path, len(scenarios) + 1)] = _text(path, scenario)
    if len(left_out) == len(scenarios):
        raise OrderError("\n".join(["no fault file can be played there", *left_out]))
    files = {"cluster.yaml": yaml.safe_dump(_as_there(known), sort_keys=False, width=110), **scenarios}
    if known.access.ca is not None:
        files["ca.pem"] = Path(known.access.ca).read_text(encoding="utf-8")
    if (size := sum(len(text.encode()) for text in files.values())) > _BYTES_MAX:
        raise OrderError(f"{len(scenarios)} fault files of {size} bytes are too much for one Job: limit {_BYTES_MAX}")
    return JobRequest(known, files, list(scenarios), left_out)


def _require_kubernetes(known: KnownCluster) -> None:
    """Raise OrderError if the cluster file offers no Kubernetes, or allows acts that do not end without the Job."""
    offer = known.stated.offers.kubernetes
    if offer is None:
        why = "a Job runs in the brokers' Kubernetes: state offers: {kubernetes: {namespace: NAME}}"
        raise OrderError(f"{known.path}: offers: {why}")
    alone = "would not end if the Job's pod is gone"
    if offer.cut_by != "rules" and "cut" in known.stated.allow:
        why = f"{offer.cut_by} {alone}: cut by rules, or play it from here"
        raise OrderError(f"{known.path}: offers.kubernetes.cut_by: {why}")
    allowed = [ACTIONS[verb] for verb in known.stated.allow]
    if others := sorted(action.verb for action in allowed if action.ways and not action.ends_alone):
        why = f"{', '.join(others)} {alone}: remove it, or play it from here"
        raise OrderError(f"{known.path}: allow: {why}")


def _fault_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield these files, and all fault files of these folders. Raise OrderError if there is no such file."""
    for path in paths:
        if path.is_dir():
            found = sorted(one for one in path.rglob("*") if one.name.endswith(_SUFFIXES))
            if not found:
                raise OrderError(f"{path} has no fault files: their names end in {' or '.join(_SUFFIXES)}")
            yield from found
        elif path.is_file():
            yield path
        else:
            raise OrderError(f"{path}: there is no such fault file, nor a folder of that name")


def _text(path: Path, scenario: Scenario) -> str:
    """Return the text of the fault file for the Job.

    If the file names a topology file, which the Job does not have, the text holds the topology itself."""
    text = path.read_text(encoding="utf-8")
    named = str(yaml.safe_load(text).get("topology"))
    return fault_file.dump(scenario) if named.endswith((".yaml", ".yml")) else text


def _name(path: Path, n: int) -> str:
    """Return a unique name for a fault file that is valid as a key of a ConfigMap."""
    stem = re.sub(r"(\.fault)?\.ya?ml$", "", path.name)
    return f"{n:03}-{re.sub(r'[^A-Za-z0-9_-]+', '-', stem)[:100]}.fault.yaml"


def _as_there(known: KnownCluster) -> dict[str, Any]:
    """Return the content of the cluster file for use inside the cluster.

    The Job's account replaces kubeconfig and context. User and password are read from its Secret. A ``port-forward``
    address becomes the host of the node's name, if that is a DNS name."""
    stated = known.stated
    nodes = tuple(_node_there(node) for node in stated.nodes)
    plain = stated.model_copy(update={"nodes": nodes}).model_dump(mode="json", exclude_unset=True)
    plain |= {name: {"file": f"{CREDENTIALS}/{name}"} for name in ("user", "password")}
    if stated.ca is not None:
        plain["ca"] = CA
    for field in ("kubeconfig", "context"):
        plain["offers"]["kubernetes"].pop(field, None)
    return plain


def _node_there(node: AttachedNode) -> AttachedNode:
    changed = {
        field: f"{scheme}://{node.host}:{port}"
        for field, scheme in _SCHEMES.items()
        if (port := forwarded_port(getattr(node, field))) is not None and "." in node.host
    }
    return node.model_copy(update=changed)


REFUSALS = (OrderError, FileRefusedError)
