"""The table of actions: each way states fields that cluster files have, and all that follows from it has its text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.extensions.attached.offers import CommandedAct, Commands, Kubernetes, Offers, Ssh, demand
from rabbitmq_resilience.model.actions import ACTIONS, HEALING_TEXT, Action, Right
from rabbitmq_resilience.model.base import Spec

MODELS: dict[str, type[Spec]] = {"ssh": Ssh, "commands": Commands, "kubernetes": Kubernetes}
RIGHTS = Path(__file__).resolve().parents[3] / "docs" / "kubernetes" / "rights.yaml"
ALL = list(ACTIONS.values())
WAYS = [(action, way) for action in ALL for way in action.ways]


def granted(kind: str) -> set[Right]:
    roles = [one for one in yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")) if one["kind"] == kind]
    rules = [
        (verb, name) for one in roles for rule in one["rules"] for verb in rule["verbs"] for name in rule["resources"]
    ]
    return {(verb, name.partition("/")[0], name.partition("/")[2]) for verb, name in rules}


def test_each_way_states_fields_of_its_backend() -> None:
    stated = [(way.backend, way.stated.field) for _, way in WAYS if way.stated is not None]
    assert [(name, field) for name, field in stated if field not in MODELS[name].model_fields] == []


def test_each_end_has_a_text_unless_the_plan_shows_its_time() -> None:
    assert {way.ends for _, way in WAYS} - HEALING_TEXT.keys() == {"watchdog", "at_once"}


def test_the_roles_in_the_docs_have_all_rights_and_each_is_needed() -> None:
    usual = {("get", "pods", ""), ("list", "pods", ""), ("get", "pods", "log"), ("create", "pods", "portforward")}
    usual |= {(verb, "pods", sub) for verb in ("get", "create") for sub in ("exec", "portforward")}
    assert granted("Role") - usual == {right for _, way in WAYS for right in way.rights}
    assert granted("ClusterRole") == {right for _, way in WAYS for right in way.cluster_rights}


@pytest.mark.parametrize("action", [action for action in ALL if action.ways], ids=lambda action: action.verb)
def test_what_is_demanded_is_enough(action: Action) -> None:
    """For each backend that is named, and each value of its field, a file that states it offers the action."""
    for text in demand(action).split(" or "):
        name, _, field = text.partition(" with ")
        if name not in (*MODELS, "api"):
            continue  # another value of the same field
        made = {"commands": {"process": "p", action.verb: CommandedAct(do="d", proof="p", heal="h")}}.get(name, {})
        stated = dict([field.split(": ")]) if field else made
        offers = Offers() if name == "api" else Offers.model_validate({name: stated})
        way = offers.way_of(action)
        assert way is not None, text
        assert way.backend == name
        assert (Offers().way_of(action) is None) == (name != "api")
