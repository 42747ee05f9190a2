"""Brokers in pods, without a Kubernetes: offers, rights, logs, and the examples of the docs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_file import ClusterFileError, KnownCluster, load
from rabbitmq_resilience.extensions.attached.fault_budget import FaultBudget
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends
from rabbitmq_resilience.model.actions import ACTIONS, HEALING_TEXT
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools.locations import CHECKOUT
from tests.messages import Messages

rights = pytest.importorskip("rabbitmq_resilience.extensions.attached.kubernetes.rights")

assert CHECKOUT is not None
EXAMPLES = CHECKOUT / "docs" / "kubernetes"

SAID = """\
version: 1
cluster: orders
user: {env: ORDERS_USER}
password: {file: secret}
partition_handling: pause_minority
net_ticktime_s: 30
nodes:
  - {name: rabbit@rabbit-0.rabbit.shop.svc, zone: a, amqp: "port-forward:5672", management: "port-forward:15672"}
  - {name: rabbit@rabbit-1.rabbit.shop.svc, zone: b, amqp: "port-forward:5672", management: "port-forward:15672"}
  - {name: rabbit@rabbit-2.rabbit.shop.svc, zone: c, amqp: "amqp://10.0.0.3:5672", management: "http://10.0.0.3:15672"}
"""
OFFERED = "offers: {kubernetes: {namespace: shop}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORDERS_USER", "chaos")
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    return tmp_path


def known(folder: Path, text: str) -> KnownCluster:
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_a_pod_is_called_as_its_nodes_host_begins_or_as_the_file_says(folder: Path) -> None:
    renamed = 'offers: {kubernetes: {namespace: shop, pods: {"rabbit@rabbit-1.rabbit.shop.svc": orders-b}}}\n'
    stated = known(folder, SAID + renamed).stated
    told = [stated.offers.reached_by(node.name) for node in stated.nodes]
    assert told == [f"pod shop/{pod} (no context stated)" for pod in ("rabbit-0", "orders-b", "rabbit-2")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (SAID, "port-forward:15672, port-forward:5672"),
        (SAID.replace("port-forward:5672", "port-forward:99999", 1), "nodes[0].amqp: "),
        (SAID.replace("port-forward:5672", "port-forward:\u0665", 1), "port-forward:PORT"),
        (SAID + "offers: {kubernetes: {namespace: Shop}}\n", "offers.kubernetes.namespace"),
        (SAID + "offers: {kubernetes: {pods: {rabbit@other: a}}}\n", "offers.kubernetes.pods: rabbit@other "),
        (SAID + "offers: {kubernetes: {}, ssh: {}}\n", "ssh and kubernetes"),
        (SAID + "offers: {kubernetes: {kill: node}}\n", "offers.kubernetes.kill"),
        (
            SAID + "offers: {kubernetes: {cut: distribution, cut_by: network_policy}}\n",
            "cut_by: rules",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(folder: Path, text: str, place: str, message: Messages) -> None:
    with message.of(ClusterFileError) as refused:
        known(folder, text)
    assert place in str(refused.value)


def test_what_can_be_done_in_pods(folder: Path, message: Messages) -> None:
    stated = known(folder, SAID + OFFERED + "allow: {kill: 1, pause: 1, lose_packets: 1, alarm: 1}\n").stated
    assert [FaultBudget(stated).refusal(act, 1) for act in ("kill", "pause", "lose_packets")] == ["", "", ""]
    text = FaultBudget(stated).refusal("alarm", 1)
    assert "ssh" in text
    message(text)


def test_a_network_policy_only_cuts(folder: Path, message: Messages) -> None:
    offered = "offers: {kubernetes: {cut_by: network_policy}}\nallow: {cut: 1, refuse: 1, lose_packets: 1}\n"
    stated = known(folder, SAID + offered).stated
    assert FaultBudget(stated).refusal("cut", 1) == ""
    for act in ("refuse", "lose_packets"):
        message(FaultBudget(stated).refusal(act, 1))


@pytest.mark.parametrize(
    ("act", "would"),
    [
        ("delay", "cut_by: chaos_mesh or ssh"),
        ("drain_node", "drain_node: brokers or all"),
        ("lose_data", "lose_data: claim"),
    ],
)
def test_what_is_not_stated_is_refused_with_what_would_offer_it(
    folder: Path, act: str, would: str, message: Messages
) -> None:
    stated = known(folder, SAID + OFFERED + f"allow: {{{act}: 1}}\n").stated
    text = FaultBudget(stated).refusal(act, 1)
    assert would in text
    message(text)


def test_what_is_stated_is_offered_and_says_how_it_ends(folder: Path) -> None:
    offer = "{cut_by: chaos_mesh, drain_node: all, lose_data: claim, restart_all: operator}"
    allow = "{cut: 1, lose_packets: 1, delay: 1, drain_node: 1, lose_data: 1, restart_all: 1}"
    stated = known(folder, SAID + f"offers: {{kubernetes: {offer}}}\nallow: {allow}\n").stated
    assert {act: FaultBudget(stated).refusal(act, 1) for act in stated.allow} == dict.fromkeys(stated.allow, "")
    assert "cut_by: rules" in FaultBudget(stated).refusal("refuse", 1)
    told = {
        act: stated.offers.ends(ACTIONS[act])
        for act in ("cut", "delay", "drain_node", "lose_data", "restart_all", "pause")
    }
    assert told == {
        "cut": "chaos_mesh",
        "delay": "chaos_mesh",
        "drain_node": "uncordon",
        "lose_data": "emptied",
        "restart_all": "rollout",
        "pause": "watchdog",
    }
    assert {*told.values()} - {"watchdog"} <= HEALING_TEXT.keys()


def test_a_way_that_there_is_not_is_reported_with_what_would_lead_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    found = known(folder, SAID + "offers: {kubernetes: {kubeconfig: nowhere.yaml}}\n")
    with message.of(ClusterError) as refused:
        NodeBackends.of(found)
    assert "offers.kubernetes.kubeconfig" in str(refused.value)


def granted(kind: str = "Role") -> set[tuple[str, str]]:
    """Verbs and resources of the roles in the docs."""
    documents = yaml.safe_load_all((EXAMPLES / "rights.yaml").read_text(encoding="utf-8"))
    rules = [rule for one in documents if one["kind"] == kind for rule in one["rules"]]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


@pytest.mark.parametrize(
    ("offer", "allow", "beside_the_usual"),
    [
        ("{}", "{}", {("create", "pods/portforward")}),
        ("{}", "{kill: 1}", {("create", "pods/portforward"), ("patch", "pods/ephemeralcontainers")}),
        (
            "{cut_by: network_policy}",
            "{cut: 1}",
            {
                ("create", "pods/portforward"),
                *((verb, "networkpolicies") for verb in ("create", "patch", "delete", "get", "list")),
            },
        ),
        ("{kill: pod}", "{kill: 1}", {("create", "pods/portforward"), ("delete", "pods")}),
        (
            "{stop: pod}",
            "{kill: 1, stop: 1}",
            {("create", "pods/portforward"), ("delete", "pods"), ("patch", "pods/ephemeralcontainers")},
        ),
        (
            "{cut_by: chaos_mesh}",
            "{cut: 1, delay: 1}",
            {
                ("create", "pods/portforward"),
                ("patch", "pods/ephemeralcontainers"),
                *((verb, "networkchaos") for verb in ("create", "patch", "delete", "get", "list")),
                *((verb, "podnetworkchaos") for verb in ("patch", "get")),
            },
        ),
        ("{drain_node: brokers}", "{drain_node: 1}", {("create", "pods/portforward"), ("create", "pods/eviction")}),
        ("{drain_node: all}", "{drain_node: 1}", {("create", "pods/portforward")}),
        ("{}", "{drain_node: 1, lose_data: 1}", {("create", "pods/portforward")}),
        (
            "{}",
            "{restart_all: 1}",
            {("create", "pods/portforward"), ("get", "statefulsets"), ("patch", "statefulsets")},
        ),
        (
            "{restart_all: operator}",
            "{restart_all: 1}",
            {("create", "pods/portforward"), ("get", "statefulsets"), ("patch", "rabbitmqclusters")},
        ),
        (
            "{lose_data: claim}",
            "{lose_data: 1}",
            {
                ("create", "pods/portforward"),
                ("delete", "pods"),
                ("get", "statefulsets"),
                *((verb, "persistentvolumeclaims") for verb in ("get", "delete")),
            },
        ),
    ],
)
def test_the_role_of_the_docs_has_what_is_asked_for(
    folder: Path, offer: str, allow: str, beside_the_usual: set[tuple[str, str]]
) -> None:
    stated = known(folder, f"{SAID}offers: {{kubernetes: {offer}}}\nallow: {allow}\n").stated
    wanted = {(verb, f"{what}/{sub}" if sub else what) for verb, what, sub in rights.wanted(stated)}
    assert wanted == {("get", "pods"), ("get", "pods/log"), ("create", "pods/exec")} | beside_the_usual
    assert wanted <= granted()


@pytest.mark.parametrize(("drain_node", "count"), [("brokers", 3), ("all", 6)])
def test_the_roles_of_the_docs_have_what_draining_needs_of_the_whole_cluster(
    folder: Path, drain_node: str, count: int
) -> None:
    offered = f"offers: {{kubernetes: {{drain_node: {drain_node}}}}}\nallow: {{drain_node: 1}}\n"
    wanted = rights.wanted_everywhere(known(folder, SAID + offered).stated)
    assert len(wanted) == count
    assert {(verb, f"{what}/{sub}" if sub else what) for verb, what, sub in wanted} <= granted("ClusterRole")
    assert rights.wanted_everywhere(known(folder, SAID + OFFERED + "allow: {drain_node: 1}\n").stated) == []


@pytest.mark.parametrize("field", ["amqp", "management", "prometheus"])
def test_one_address_by_port_forward_needs_the_right_to_forward(folder: Path, field: str) -> None:
    plain = yaml.safe_load(SAID + "offers: {kubernetes: {}}\n")
    for n, one in enumerate(plain["nodes"]):
        host = f"broker-{n}"
        one |= {"amqp": f"amqp://{host}", "management": f"http://{host}:15672", "prometheus": f"http://{host}:15692"}
    stated = known(folder, yaml.safe_dump(plain)).stated
    assert ("create", "pods", "portforward") not in rights.wanted(stated)
    plain["nodes"][1][field] = "port-forward:7"
    stated = known(folder, yaml.safe_dump(plain)).stated
    assert ("create", "pods", "portforward") in rights.wanted(stated)


@pytest.mark.parametrize("address", ["https://broker:15692", "http://broker:15692/metrics/detailed"])
def test_metrics_that_would_be_looked_for_elsewhere_are_refused(folder: Path, address: str, message: Messages) -> None:
    plain = yaml.safe_load(SAID + "offers: {kubernetes: {}}\n")
    plain["nodes"][0]["prometheus"] = address
    with message.of(ClusterFileError) as refused:
        known(folder, yaml.safe_dump(plain))
    assert "nodes[0].prometheus" in str(refused.value)


class PrintedLog:
    """What the API server would give: of the container before, and of the one that runs."""

    def __init__(self) -> None:
        self.before = ""
        self.now = ""
        self.namespace, self.container = "shop", "rabbitmq"

    def ask(self, what: str, call: Any) -> str:  # noqa: ARG002 - of Pods
        return str(call(self))

    def read_namespaced_pod_log(self, pod: str, namespace: str, **how: Any) -> str:  # noqa: ARG002 - of the client
        if "tail_lines" in how:
            return "".join(self.now.splitlines(keepends=True)[-how["tail_lines"] :])
        return self.before if how["previous"] else self.now


def test_each_line_is_read_once_also_when_a_container_is_another_one() -> None:
    from rabbitmq_resilience.extensions.attached.kubernetes.log import PodLog  # noqa: PLC0415 - optional

    printed = PrintedLog()
    log = PodLog(printed, "rabbit-0")  # type: ignore[arg-type]
    printed.now = "2026-11-23T09:59:00Z older\n2026-11-23T10:00:00.5Z old\n"
    log.begin()
    printed.now += "2026-11-23T10:00:00.50000001Z first\n2026-11-23T10:00:01Z second\n"
    assert log.more() == "first\nsecond\n"
    printed.before, printed.now = (
        printed.now + "2026-11-23T10:00:01.1Z dies\n",
        "2026-11-23T10:00:03Z \x1b[38;5;9mis back\x1b[0m\n",
    )
    log.pull()
    printed.before, printed.now = "", ""
    assert log.more() == "dies\nis back\n"
    assert log.more() == ""


def test_the_examples_of_the_docs_fit_each_other() -> None:
    documents: list[Mapping[str, Any]] = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        documents += [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if "kind" in one]
    accounts = {one["metadata"]["name"] for one in documents if one["kind"] == "ServiceAccount"}
    for one in documents:
        for subject in one.get("subjects", ()):
            assert subject["kind"] == "User" or subject["name"] in accounts  # users are nobody's example


def pod(**spec: Any) -> Any:
    """As the API server would tell of one that stores nothing in a claim."""
    said = {"share_process_namespace": None, "host_pid": None, "host_network": None, **spec}
    return SimpleNamespace(
        name="rabbit-0", node="n", has_claim=False, raw=SimpleNamespace(spec=SimpleNamespace(**said))
    )


@pytest.mark.parametrize(
    ("offer", "allow", "spec", "told"),
    [
        ("{}", "{kill: 1, stop: 1, pause: 1}", {}, ""),
        ("{}", "{kill: 1, cut: 1}", {"share_process_namespace": True}, "kill"),
        ("{}", "{stop: 1, pause: 1}", {"host_pid": True}, "stop, pause"),
        ("{kill: pod, stop: container}", "{cut: 1}", {"host_pid": True}, ""),
        ("{kill: pod}", "{kill: 1}", {"host_pid": True}, "volume claim"),
        ("{kill: pod}", "{pause: 1}", {}, ""),
        ("{}", "{cut: 1, kill: 1}", {"host_network": True}, "hostNetwork"),
        ("{}", "{kill: 1}", {"host_network": True}, ""),
        ("{}", "{restart_all: 1}", {}, "restart_all"),
        ("{drain_node: all}", "{drain_node: 1, kill: 1}", {}, "drain_node"),
        ("{}", "{drain_node: 1}", {}, ""),
        ("{lose_data: claim}", "{lose_data: 1}", {}, "StatefulSet"),
        ("{}", "{lose_data: 1}", {}, ""),
    ],
)
def test_pods_in_which_something_else_would_be_hit_are_reported(
    folder: Path, offer: str, allow: str, spec: dict[str, Any], told: str, *, message: Messages
) -> None:
    from rabbitmq_resilience.extensions.attached.kubernetes.config_mismatch import contrary  # noqa: PLC0415 - optional

    found = known(folder, f"{SAID}offers: {{kubernetes: {offer}}}\nallow: {allow}\n")
    pods: Any = SimpleNamespace(find=lambda _: pod(**spec), zone=lambda _: None)
    none: Any = SimpleNamespace(of=lambda _: [])
    names: Any = [node.name for node in found.stated.nodes]
    texts = list(contrary(found, pods, dict.fromkeys(names, "rabbit-0"), dict.fromkeys(names, none)))
    assert len(texts) == (len(found.stated.nodes) if told else 0)
    assert all(told in text for text in texts)
    for text in texts:
        message(text)


def test_heal_without_a_way_there_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    known(folder, SAID + "offers: {kubernetes: {kubeconfig: nowhere.yaml}}\n")
    assert heal([str(folder / "cluster.yaml")]) == 1
    message(capsys.readouterr().err)
