"""Generate the JSON Schema of fault files for editors, from the definitions.

.venv/bin/python -m rabbitmq_resilience.scenario.schema > docs/fault-file.schema.json
"""

from __future__ import annotations

import json
from typing import Any

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload import presets


def schema() -> dict[str, Any]:
    """Return the schema. A file that fits may still be wrong: targets are checked against the topology, and steps
    against each other, only when the file is loaded."""
    made = Scenario.model_json_schema()
    made["title"] = "Fault file"
    for step in made["$defs"].values():
        if "fault" in step.get("properties", ()):
            step["required"] = [*(name for name in step["required"] if name != "for_s"), "fault"]
            step["allOf"] = [{"anyOf": [{"required": ["for_s"]}, {"required": ["for_ticks"]}]}]
    topology = made["properties"]["topology"]
    named = {"enum": list(topology_catalogue.names()), "description": "a topology that is known by name"}
    file = {"type": "string", "pattern": r"\.ya?ml$", "description": "the path of its file, relative to this one"}
    made["properties"]["topology"] = {"anyOf": [named, file, topology]}
    made["$defs"]["Workload"]["properties"] |= {
        "preset": {"enum": list(presets.names()), "description": "a load that is known by name"},
        "scale": {"type": "number", "exclusiveMinimum": 0, "description": "of the load that was published"},
    }
    workload = made["properties"]["workload"]
    workload["anyOf"] = workload.pop("oneOf")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
