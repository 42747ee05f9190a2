"""An application as a workload: what a fault file may say of it, and what is refused, with its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.runner import load_kinds
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.problems import PROBLEMS_OF
from rabbitmq_resilience.workload.application_model import ApplicationWorkload, Variables, missing_programs
from rabbitmq_resilience.workload.application_processes import environment_of
from rabbitmq_resilience.workload.kinds import KINDS
from tests.messages import Messages

WEB = {"name": "web", "command": ["{python}", "web.py"]}
FILE: dict[str, Any] = {
    "version": 1,
    "title": "An application loses a node",
    "topology": "three_nodes_three_zones",
    "workload": {"kind": "application", "processes": [WEB]},
    "schedule": [{"at_s": 1, "for_s": 2, "fault": "kill", "node": "a1"}],
    "invariants": {"no_loss": {}},
}


def written(*, workload: Any = None, **fields: Any) -> str:
    """Return a fault file with other fields; None leaves one out."""
    changed = FILE | fields
    if workload is not None:
        changed = changed | {"workload": FILE["workload"] | workload}
    return as_yaml({name: value for name, value in changed.items() if value is not None})


def as_yaml(plain: Any) -> str:
    """Return a text without anchors."""
    return yaml.safe_dump(json.loads(json.dumps(plain)), sort_keys=False)


WORKLOADS = {
    "generated fields": {"publishers": 3, "rate_per_s": 100},
    "one name twice": {"processes": [WEB, WEB]},
    "a program with the name of another's process": {"processes": [WEB | {"number": 2}, WEB | {"name": "web-1"}]},
    "no process": {"processes": []},
    "no command": {"processes": [WEB | {"command": []}]},
    "the Python of this machine in an image": {"processes": [WEB | {"image": "shop:1"}]},
    "a name that clients cannot have": {"processes": [WEB | {"name": "Web 1"}]},
    "fifty-one processes": {"processes": [WEB | {"number": 26}, WEB | {"name": "job", "number": 25}]},
    "a variable with a dash": {"variables": {"url": "AMQP-URL"}},
    "a variable of the process with a space": {"processes": [WEB | {"environ": {"MY VAR": "1"}}]},
    "a variable that there is not": {"variables": {"uri": "AMQP_URI"}},
    "a field of a process that there is not": {"processes": [WEB | {"replicas": 2}]},
    "a program that is not there": {"processes": [WEB | {"command": ["no-such-program-here"]}]},
    "a program of the folder that is not there": {"processes": [WEB | {"command": ["./run.sh"]}]},
    "a folder that is not there": {"processes": [WEB | {"folder": "nowhere"}]},
}
FAULT = {"at_s": 1, "for_s": 2}
FILES: dict[str, dict[str, Any]] = {
    "order among several consumers": {"invariants": {"order": {"shared_queues": "judged"}}},
    "metadata": {"invariants": {"metadata": {}}},
    "dead letters": {"invariants": {"dead_letters": {}}},
    "an unknown process of a link": {
        "schedule": [FAULT | {"fault": "partition", "between": ["application:job-0", "all"]}]
    },
    "a process by its program alone": {
        "schedule": [FAULT | {"fault": "partition", "between": ["application:web", "all"]}]
    },
    "an unknown process that is killed": {
        "schedule": [FAULT | {"fault": "kill_client", "client": "application:web-1"}]
    },
    "a publisher that is killed": {"schedule": [FAULT | {"fault": "kill_client", "client": "publisher:0"}]},
    "an unknown process of a method": {
        "schedule": [FAULT | {"fault": "drop_method", "method": "confirms", "process": "job"}]
    },
    "a method that there is not": {
        "schedule": [FAULT | {"fault": "hold_method", "method": "basic.consum-ok", "hold_s": 1}]
    },
    "a method that both sides send": {"schedule": [FAULT | {"fault": "drop_method", "method": "basic.ack"}]},
    "a publish that never arrives": {"schedule": [FAULT | {"fault": "drop_method", "method": "basic.publish"}]},
    "an error that there is not": {
        "schedule": [FAULT | {"fault": "answer_method", "method": "queue.declare", "code": 599}]
    },
}


@pytest.mark.parametrize("case", WORKLOADS)
def test_a_workload_is_refused_with_its_line(case: str, message: Messages, tmp_path: Path) -> None:
    with message.of(FaultFileError):
        fault_file.parse(written(workload=WORKLOADS[case]), folder=tmp_path)


@pytest.mark.parametrize("case", FILES)
def test_what_an_application_cannot_have_is_refused(case: str, message: Messages, tmp_path: Path) -> None:
    with message.of(FaultFileError):
        fault_file.parse(written(**FILES[case]), folder=tmp_path)


def test_balancers_are_refused_as_a_tap_leads_to_one_broker(message: Messages, tmp_path: Path) -> None:
    text = written(topology="three_nodes_two_balancers")
    with message.of(FaultFileError):
        fault_file.parse(text, folder=tmp_path)


@pytest.mark.parametrize("name", ["stays_up", "reconnects", "consumers", "settled", "committed"])
def test_what_is_judged_of_applications_alone_is_refused_for_a_generated_load(
    name: str, message: Messages, tmp_path: Path
) -> None:
    text = as_yaml(FILE | {"workload": {"queues": 1}, "invariants": {name: {}}})
    with message.of(FaultFileError):
        fault_file.parse(text, folder=tmp_path)


def test_tls_of_clients_is_for_applications(message: Messages, tmp_path: Path) -> None:
    topology = {"name": "secure", "zones": {"a": 1}, "client_tls": True}
    text = as_yaml(FILE | {"topology": topology, "workload": {"queues": 1}})
    with message.of(FaultFileError):
        fault_file.parse(text, folder=tmp_path)


def test_only_with_tls_a_process_is_led_by_tls_and_to_its_authority() -> None:
    variables, access = Variables(ca_file="SSL_CERT_FILE"), Access("me", "p/w", ca="run.pem")
    plain = environment_of(variables, access, "/", {"a1": Endpoint("127.0.0.1", 1), "b1": Endpoint("127.0.0.1", 2)})
    assert plain["AMQP_URLS"] == "amqp://me:p%2Fw@127.0.0.1:1/%2F,amqp://me:p%2Fw@127.0.0.1:2/%2F"
    assert "SSL_CERT_FILE" not in plain
    secure = environment_of(variables, access, "/", {"a1": Endpoint("127.0.0.1", 1, "127.0.0.1")})
    assert secure["AMQP_URL"] == "amqps://me:p%2Fw@127.0.0.1:1/%2F"
    assert secure["SSL_CERT_FILE"] == "run.pem"


def test_methods_of_a_generated_load_are_left_alone(message: Messages, tmp_path: Path) -> None:
    schedule = [FAULT | {"fault": "hold_method", "method": "basic.consume-ok", "hold_s": 1}]
    text = as_yaml(FILE | {"workload": {"queues": 1}, "schedule": schedule})
    with message.of(FaultFileError):
        fault_file.parse(text, folder=tmp_path)


def test_a_scenario_with_an_application_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Strictly, as records and workers read it; with its own fields only, and the judgement of its ends."""
    process = WEB | {"number": 2, "stops": "before_drain", "environ": {"LEVEL": "debug"}, "restarted": True}
    text = written(workload={"processes": [process], "unconfirmed": "judged", "variables": {"url": "BROKER"}})
    scenario = fault_file.parse(text, folder=tmp_path)
    assert "stays_up" in scenario.chosen_invariants
    again = Scenario.model_validate_json(scenario.model_dump_json(), strict=True)
    assert again.workload == scenario.workload
    assert isinstance(again.workload, ApplicationWorkload)
    assert again.workload.instances == ("web-0", "web-1")
    dumped = scenario.model_dump(mode="json")["workload"]
    assert set(dumped) == {"kind", "queue_type", "processes", "variables", "flowing", "unconfirmed", "properties"}
    (tmp_path / "again.yaml").write_text(fault_file.dump(scenario), encoding="utf-8")
    assert fault_file.load(tmp_path / "again.yaml") == scenario


def test_a_command_may_hold_the_name_of_its_process() -> None:
    process = WEB | {"number": 2, "command": ["web", "-n", "{name}@%h"]}
    workload = ApplicationWorkload.model_validate({"kind": "application", "processes": [process]})
    assert workload.processes[0].arguments("web-1") == ["web", "-n", "web-1@%h"]


def test_python_in_a_command_is_the_one_that_plays(tmp_path: Path) -> None:
    workload = ApplicationWorkload.model_validate({"kind": "application", "processes": [WEB]})
    assert workload.processes[0].arguments("web-0") == [sys.executable, "web.py"]
    assert list(missing_programs(workload, tmp_path)) == []


def with_image(**fields: Any) -> str:
    return written(workload={"processes": [{"name": "web", "image": "shop:1", **fields}]})


def test_an_image_is_refused_where_there_is_no_engine(message: Messages, tmp_path: Path) -> None:
    with message.of(FaultFileError):
        fault_file.parse(with_image(), folder=tmp_path, driver="local")


def test_an_image_needs_neither_a_command_nor_a_program_of_this_machine(tmp_path: Path) -> None:
    """The engine is asked for it before anything starts. It sees a folder only if one is stated."""
    parsed = [
        fault_file.parse(with_image(**fields), folder=tmp_path, driver="docker")
        for fields in ({}, {"command": ["serve", "{name}"], "folder": "."})
    ]
    bare, stated = [scenario.workload for scenario in parsed]
    assert isinstance(bare, ApplicationWorkload)
    assert isinstance(stated, ApplicationWorkload)
    assert frozenset({"the image shop:1"}) == bare.needs <= parsed[0].needs
    assert (bare.processes[0].arguments("web-0"), bare.processes[0].folder) == ([], None)
    assert (stated.processes[0].arguments("web-0"), stated.processes[0].folder) == (["serve", "web-0"], tmp_path)
    assert list(map(str, (*bare.processes, *stated.processes))) == ["web (shop:1)", "web (shop:1 serve '{name}')"]


def test_a_name_means_a_process_or_all_copies_of_a_program() -> None:
    processes = [WEB | {"number": 2}, WEB | {"name": "web-2x"}]
    workload = ApplicationWorkload.model_validate({"kind": "application", "processes": processes})
    assert workload.meant("web") == ("web-0", "web-1")
    assert workload.meant("web-1") == ("web-1",)
    assert workload.meant("web-2") == ()


def test_each_kind_has_its_part_in_every_room_and_names_invariants_that_there_are() -> None:
    assert load_kinds.KINDS.keys() == PROBLEMS_OF.keys() == KINDS.keys()
    named = {name for kind in KINDS.values() for name in (*kind.own_invariants, *kind.always_judged)}
    assert named <= INVARIANTS.keys()
