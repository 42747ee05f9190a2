"""What is to be played by a Job: checked here, before anything is made there, and written as the Job will find it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster, load
from rabbitmq_resilience.clusters.attached.offers import Kubernetes
from rabbitmq_resilience.clusters.attached.permits import OFFERED_BY
from rabbitmq_resilience.clusters.attached.spec import AttachedNode, forwarded_port
from rabbitmq_resilience.jobs.places import CA, CREDENTIALS
from rabbitmq_resilience.scenarios import fault_file
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.scenarios.on_clusters import NotPlayableError, check, fitted
from rabbitmq_resilience.tools.yaml_files import FileRefusedError

#: A ConfigMap holds a mebibyte.
_BYTES_MAX = 1_000_000
_SUFFIXES = (".fault.yaml", ".fault.yml")
#: What a watchdog beside the broker ends, or Kubernetes. The end of all else lives where it was done from.
_END_THERE = frozenset({"kill", "stop", "pause", "cut", "refuse", "lose_packets", "rebalance"})
_SCHEMES = {"amqp": "amqp", "management": "http", "prometheus": "http"}


class OrderError(Exception):
    """It is refused, and nothing was made; the text says what to write instead."""


@dataclass(frozen=True)
class Order:
    """``files`` by their names in the Job; ``scenarios`` are the fault files among them, in order. ``left_out``: in
    words, what the cluster cannot play."""

    known: KnownCluster
    files: Mapping[str, str]
    scenarios: Sequence[str]
    left_out: Sequence[str]

    @property
    def offer(self) -> Kubernetes:
        found = self.known.stated.offers.kubernetes
        assert found is not None, "without it there is no order"
        return found

    @property
    def access(self) -> Access:
        return self.known.access


def ordered(cluster: Path, paths: Sequence[Path]) -> Order:
    """``paths``: fault files, and folders of them. Raises OrderError, and FileRefusedError with line and field."""
    known = load(cluster)
    _require_kubernetes(known)
    for name, secret in (("user", known.access.user), ("password", known.access.password)):
        if len(secret.splitlines()) != 1:
            raise OrderError(f"{cluster}: {name}: has several lines, and goes on as the first line of a file")
    scenarios: dict[str, str] = {}
    left_out: list[str] = []
    for path in _fault_files(paths):
        scenario = fault_file.load(path, driver="attached")
        check(scenario, cluster, source=str(path))
        if scenario.rule_files:
            raise OrderError(f"{path}: rules: files of rules do not go along with a Job; play it from here")
        try:
            fitted(scenario, cluster)
        except NotPlayableError as error:
            left_out.append(f"{path}: {error}")
        scenarios[_name(path, len(scenarios) + 1)] = _text(path, scenario)
    if len(left_out) == len(scenarios):
        raise OrderError("\n".join(["none of them can be played there", *left_out]))
    files = {"cluster.yaml": yaml.safe_dump(_as_there(known), sort_keys=False, width=110), **scenarios}
    if known.access.ca is not None:
        files["ca.pem"] = Path(known.access.ca).read_text(encoding="utf-8")
    if (size := sum(len(text.encode()) for text in files.values())) > _BYTES_MAX:
        raise OrderError(f"{len(scenarios)} fault files of {size} bytes are too much for one Job: {_BYTES_MAX} go in")
    return Order(known, files, list(scenarios), left_out)


def _require_kubernetes(known: KnownCluster) -> None:
    offer = known.stated.offers.kubernetes
    if offer is None:
        why = "a Job runs in the brokers' Kubernetes: state offers: {kubernetes: {namespace: NAME}}"
        raise OrderError(f"{known.path}: offers: {why}")
    alone = "has no end of its own where the Job's pod is gone"
    if offer.cut_by != "rules" and "cut" in known.stated.allow:
        why = f"{offer.cut_by} {alone}: cut by rules, or play it from here"
        raise OrderError(f"{known.path}: offers.kubernetes.cut_by: {why}")
    if others := sorted((known.stated.allow.keys() & OFFERED_BY.keys()) - _END_THERE):
        why = f"{', '.join(others)} {alone}: leave it out, or play it from here"
        raise OrderError(f"{known.path}: allow: {why}")


def _fault_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Raises OrderError."""
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
    """As it was written, unless it names a topology's file, which does not go along."""
    text = path.read_text(encoding="utf-8")
    named = str(yaml.safe_load(text).get("topology"))
    return fault_file.dump(scenario) if named.endswith((".yaml", ".yml")) else text


def _name(path: Path, n: int) -> str:
    """As keys of a ConfigMap are, and one for each."""
    stem = re.sub(r"(\.fault)?\.ya?ml$", "", path.name)
    return f"{n:03}-{re.sub(r'[^A-Za-z0-9_-]+', '-', stem)[:100]}.fault.yaml"


def _as_there(known: KnownCluster) -> dict[str, Any]:
    """The cluster file as it is seen in the cluster itself: who we are there is the Job's account, and who we are to
    the brokers stands in its Secret. What is a port of a pod from here is reached by the name of its node there, where
    that is a name of DNS."""
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
