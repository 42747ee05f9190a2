"""Describe the user's own program as the workload of a scenario: its processes, and how each is started and stopped."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.sut.container_protocol import PROGRAM_IMAGE
from rabbitmq_resilience.tap.tap import KeptProperties
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: The role of the clients' names: ``application:worker-0``.
ROLE = "application"
#: In a command, the interpreter of this process.
PYTHON = "{python}"
#: In a command, the name of the process.
NAME = "{name}"
PROCESSES_MAX = 50

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _checked(names: Mapping[str, str]) -> Mapping[str, str]:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a variable; it has letters, digits and '_'")
    return names


def _some(processes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the processes. Pydantic's own check also counts those that are refused as missing."""
    if not processes:
        raise ValueError("there is none; state the command of one at least")
    return processes


class ApplicationProcess(Spec):
    """A program of the application, run ``number`` times.

    ``command`` is a list of the program and its arguments, without a shell; ``{python}`` is the Python that plays the
    scenario, which has pika, and ``{name}`` the name of the process (``worker-0``). ``image``: with containers, the
    image that it is run in, on the network of this machine; without a ``command``, its own one is run. ``folder``:
    where it is run, relative to the fault file; an image sees that folder at the same path, and cannot write there.
    ``environ``: further variables of its environment, which are recorded; a secret goes into the environment of pytest,
    which commands get too. ``restarted``: it is started again when it ends by itself, as a supervisor does. ``stops``:
    when it is asked to end. ``before_drain`` is for programs that publish: the drain begins when they have ended.
    ``after_drain`` is for those that consume. It is asked by ``stop_signal``, and killed if it does not end within
    ``stop_within_s``.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")]
    command: tuple[str, ...] = ()
    image: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    folder: Path | None = None
    environ: Mapping[str, str] = Field(default_factory=dict)
    number: Annotated[int, Field(ge=1, le=PROCESSES_MAX)] = 1
    restarted: bool = False
    stops: Literal["before_drain", "after_drain"] = "after_drain"
    stop_signal: Literal["TERM", "INT"] = "TERM"
    stop_within_s: Annotated[float, Field(gt=0, le=600)] = 15.0

    @field_validator("environ")
    @classmethod
    def _are_variables(cls, environ: Mapping[str, str]) -> Mapping[str, str]:
        return _checked(environ)

    @model_validator(mode="after")
    def _can_be_run(self) -> ApplicationProcess:
        if self.image is None and not self.command:
            raise ValueError("there is no command; write command: [PROGRAM, ARGUMENT, ...]")
        if self.image is not None and PYTHON in self.command:
            raise ValueError(f"{PYTHON} is a program of this machine; name the one of the image {self.image}")
        return self

    @property
    def instances(self) -> tuple[str, ...]:
        """Return the names of its processes: ``worker-0``, ``worker-1``, ..."""
        return tuple(f"{self.name}-{i}" for i in range(self.number))

    def __str__(self) -> str:
        return f"{self.name} ({' '.join(filter(None, [self.image, shlex.join(self.command)]))})"

    def arguments(self, name: str) -> list[str]:
        """Return the command of the process with that name, as it is run on this machine or in its image."""
        return [sys.executable if word == PYTHON else word.replace(NAME, name) for word in self.command]


class Variables(Spec):
    """The names of the variables in which programs get the address of their broker. ``urls`` has one URL for each
    node, with commas between them; ``url`` is the first of these. Every process begins with another node. ``ca_file``:
    the file with the authority that made the tap's certificate, only where clients speak TLS. A client that knows a
    variable of its own for this, such as SSL_CERT_FILE, finds it by that name."""

    url: str = "AMQP_URL"
    urls: str = "AMQP_URLS"
    host: str = "AMQP_HOST"
    port: str = "AMQP_PORT"
    vhost: str = "AMQP_VHOST"
    user: str = "AMQP_USER"
    password: str = "AMQP_PASSWORD"  # noqa: S105 - the name of a variable
    ca_file: str = "AMQP_CA_FILE"

    @model_validator(mode="after")
    def _are_variables(self) -> Variables:
        _checked({name: "" for name in self.model_dump().values()})
        return self


class Flowing(Spec):
    """How many messages the application must have ``published`` and been ``delivered``, and ``within_s`` of its start,
    for the load to count as flowing. The steady phase begins then."""

    published: Annotated[int, Field(ge=0)] = 1
    delivered: Annotated[int, Field(ge=0)] = 1
    within_s: Annotated[float, Field(gt=0, le=3600)] = 60.0


class ApplicationWorkload(WorkloadBase):
    """The user's own program, unchanged. A tap on the wire between its processes and the brokers records what it
    publishes, and what it gets.

    Each of the ``processes`` gets the address of the brokers in ``variables`` of its environment. It declares what it
    needs by itself. ``queue_type`` says of which type its queues are; expectations are chosen by it. ``unconfirmed``:
    whether the loss of messages that were published without confirms is ``judged``, or only ``reported``.
    ``properties``: whether the record has only a ``hash`` of the properties of messages, or their ``values`` too, which
    may be customers' data. What each process writes to its output is in the run's folder, under ``logs``.
    """

    model_config = ConfigDict(title="application")

    own_invariants = frozenset({"stays_up", "reconnects", "consumers", "settled", "committed"})
    always_judged = ("stays_up",)

    kind: Literal["application"]
    processes: Annotated[
        tuple[ApplicationProcess, ...], AfterValidator(_some), Field(json_schema_extra={"minItems": 1})
    ]
    variables: Variables = Variables()
    flowing: Flowing = Flowing()
    unconfirmed: Literal["reported", "judged"] = "reported"
    properties: KeptProperties = "hash"

    @model_validator(mode="after")
    def _are_named_apart(self) -> ApplicationWorkload:
        names = [process.name for process in self.processes]
        if len(set(names)) < len(names):
            raise ValueError(f"processes are called {', '.join(names)}; give each a name of its own")
        if both := sorted({*names} & {*self.instances}):
            text = f"{both[0]} is the name of a program, and of one of the processes of another"
            raise ValueError(f"{text}; call the program otherwise")
        if len(self.instances) > PROCESSES_MAX:
            raise ValueError(f"there are {len(self.instances)} processes; {PROCESSES_MAX} are the most")
        return self

    def with_folders(self, folder_of: Callable[[Path], Path]) -> ApplicationWorkload:
        """Return the workload with another folder for each process; a command without a folder has that of the file."""
        processes = tuple(
            p.model_copy(update={"folder": folder_of(p.folder or Path())}) if p.folder or not p.image else p
            for p in self.processes
        )
        return self.model_copy(update={"processes": processes})

    @property
    def instances(self) -> tuple[str, ...]:
        """Return the names of all processes, in order. Their indexes are those of the clients in the history."""
        return tuple(name for process in self.processes for name in process.instances)

    def meant(self, name: str) -> tuple[str, ...]:
        """Return the processes that a name means: itself, or all copies of a program; () if there are none."""
        of_program = next((process.instances for process in self.processes if process.name == name), ())
        return of_program or ((name,) if name in self.instances else ())

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"{PROGRAM_IMAGE}{process.image}" for process in self.processes if process.image is not None)

    @property
    def clients(self) -> list[str]:
        return [f"{ROLE}:{name}" for name in self.instances]


def missing_programs(workload: ApplicationWorkload, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield (index of the process, what is missing) for programs and folders that are not there. ``folder`` is that of
    the fault file."""
    for index, process in enumerate(workload.processes):
        where = (folder / process.folder) if process.folder is not None else folder
        if not where.is_dir():
            yield index, f"{process.name} is run in {where}, and there is no such folder"
            continue
        if process.image is not None:
            continue
        program = process.arguments(process.name)[0]
        found = which(program) if "/" not in program else which(str((where / program).resolve()))
        if found is None:
            yield index, f"{process.name} has no program {program} that can be run; prepare the application first"
