"""Provide RabbitMQ PerfTest, whose numbers are compared with ours: Maven fetches it, Java runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

VERSION = "2.22.1"
PLACE = TOOLS / "perf-test"
MAIN = "com.rabbitmq.perf.PerfTest"
SET_UP = "rabbitmq-resilience setup perf-test" if CHECKOUT is None else "make perf-test"

#: The project for which Maven fetches PerfTest and its dependencies.
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rabbitmq-resilience</groupId>
  <artifactId>perf-test-tool</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>com.rabbitmq</groupId>
      <artifactId>perf-test</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_MISSING = """\
PerfTest {version} is needed for numbers to compare with ours, and could not be provided: {why}
How to provide it:
  Debian, Ubuntu   the packages default-jre-headless and maven
  macOS            brew install maven
  elsewhere        Java 11 or newer and Maven, which takes a repository of your own from its settings.xml;
                   or name a folder with PerfTest's jars in PERF_TEST"""


def find_perf_test(*, environ: Mapping[str, str] | None = None, place: Path = PLACE) -> list[str]:
    """Return the command to which PerfTest's options are appended.

    It uses the jars in the folder that PERF_TEST names, else those that set-up has fetched. Raise ToolMissingError if
    the jars or Java are missing."""
    environ = os.environ if environ is None else environ
    named = environ.get("PERF_TEST")
    jars = Path(named) if named else place
    java = shutil.which("java", path=environ.get("PATH"))
    if not any(jars.glob("perf-test-*.jar")):
        if named:
            raise ToolMissingError(f"PERF_TEST names {named}, which holds no perf-test-*.jar")
        where = within_root(place)
        raise ToolMissingError(f"no PerfTest in {where}. Run `{SET_UP}`, or name a folder with its jars in PERF_TEST.")
    if java is None:
        raise ToolMissingError("PerfTest needs java, and there is none on PATH (Debian: default-jre-headless)")
    return [java, "-cp", f"{jars}/*", MAIN]


def found() -> str | None:
    """Return the folder of jars that a run would use now, or None if there is none.

    Raise ``Missing`` if PERF_TEST names a folder that cannot be used."""
    try:
        find_perf_test()
    except ToolMissingError as error:
        if os.environ.get("PERF_TEST"):
            raise Missing(str(error)) from error
        return None
    return within_root(Path(os.environ.get("PERF_TEST") or PLACE))


def make() -> str:
    """Fetch PerfTest by Maven; return where it is. Raise ``Missing`` if that fails."""
    lacking = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if lacking:
        raise Missing(_MISSING.format(version=VERSION, why=f"no {' and no '.join(lacking)} on PATH"))
    PLACE.mkdir(parents=True, exist_ok=True)
    pom = PLACE / "pom.xml"
    pom.write_text(_POM, encoding="utf-8")
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={PLACE}", "-DincludeScope=runtime"]
    try:
        run(["mvn", "-B", "-f", pom, *copy], doing=f"fetching PerfTest {VERSION}")
    except Failed as error:
        raise Missing(_MISSING.format(version=VERSION, why=str(error).replace("\n", "\n    "))) from error
    return within_root(PLACE)


STEP = SetupTask("PerfTest", found, make)
