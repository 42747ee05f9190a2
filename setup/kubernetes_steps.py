"""Provide a Kubernetes on this machine to try the suite on, and stop it.

``make kubernetes`` starts three nodes, each in a zone of its own, with the brokers of ``docs/kubernetes/cluster.yaml``,
and writes a cluster file of them. ``make kubernetes-suite`` makes an image of this checkout for its pods.

As root, it installs Debian's packages and builds Kubernetes from its modules. The scripts in ``setup/kubernetes`` do
that in ``.tools/kubernetes``, where existing results are kept. The kubeconfig is
``.tools/kubernetes/conf/admin.kubeconfig``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run
from setup import environment

VERSION = "1.30.14"
PLACE = TOOLS / "kubernetes"
KUBECONFIG = PLACE / "conf" / "admin.kubeconfig"
_SCRIPTS = Path(__file__).parent / "kubernetes"

_NEEDED = ("containerd", "runc", "etcd", "conntrack", "iptables", "ip", "mmdebstrap", "gcc", "openssl", "busybox")
#: The example, and the image for its brokers here: made from Debian's packages, so no registry of images is needed.
_EXAMPLE = environment.ROOT / "docs" / "kubernetes" / "cluster.yaml"
_BROKER = "local/rabbitmq:3.10.8"
CLUSTER_FILE = PLACE / "rabbit.cluster.yaml"

_IMAGES = ("pause", "busybox", "coredns", "rabbitmq")

_MISSING = """\
A Kubernetes to try the suite on could not be provided: {why}
This needs root on Debian, and Go. On other systems name an existing cluster: KUBECONFIG=/path/to/kubeconfig"""


def _script(name: str, *arguments: str, doing: str) -> None:
    """Copy the scripts to ``.tools/kubernetes`` and run one there. Raise ``Missing`` if it cannot run, or fails."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(_MISSING.format(why="this is not Debian, or you are not root"))
    PLACE.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_SCRIPTS, PLACE, dirs_exist_ok=True)
    try:
        run(["bash", PLACE / name, *arguments], doing=doing, cwd=PLACE)
    except Failed as error:
        raise Missing(_MISSING.format(why=str(error).replace("\n", "\n    "))) from error


def _packages_found() -> str | None:
    there = all(shutil.which(name) for name in _NEEDED) and Path("/usr/lib/cni/bridge").exists()
    return "installed" if there else None


def _packages() -> str:
    print("  !!  installing Debian's packages on this system, see setup/kubernetes/packages.sh", flush=True)
    _script("packages.sh", doing="installing packages")
    return "installed"


def _programs_found() -> str | None:
    stamp = PLACE / "bin" / "version"
    there = stamp.exists() and stamp.read_text(encoding="utf-8").strip() == VERSION
    return within_root(PLACE / "bin") if there else None


def _programs() -> str:
    _script("programs.sh", VERSION, doing="building Kubernetes and CoreDNS, about 8 minutes the first time")
    return within_root(PLACE / "bin")


def _images_found() -> str | None:
    there = all((PLACE / "images" / f"{name}.tar").exists() for name in _IMAGES)
    return within_root(PLACE / "images") if there else None


def _images() -> str:
    _script("images.sh", doing="making the images of a broker and of other pods")
    return within_root(PLACE / "images")


def _cluster_found() -> str | None:
    if not (PLACE / "run" / "apiserver.pid").exists():
        return None
    try:
        run([PLACE / "kubectl", "get", "--raw", "/readyz"], doing="asking the API server")
    except Failed:
        return None
    return f"running; KUBECONFIG={within_root(KUBECONFIG)}"


def _cluster() -> str:
    if (PLACE / "run").exists():
        _script("down.sh", doing="ending what is left of an earlier Kubernetes")
    _script("up.sh", doing="starting three nodes")
    return f"stays running, `make kubernetes-stop` ends it; KUBECONFIG={within_root(KUBECONFIG)}"


def _brokers_found() -> str | None:
    if not CLUSTER_FILE.exists():
        return None
    ready = ["get", "statefulset", "rabbit", "-o", "jsonpath={.status.readyReplicas}"]
    try:
        return _stated() if run([PLACE / "kubectl", *ready], doing="asking for brokers").strip() == "3" else None
    except Failed:
        return None


def _brokers() -> str:
    _script("brokers.sh", str(_EXAMPLE), _BROKER, doing="starting three brokers, each in a zone")
    find: list[str | Path] = [
        environment.PYTHON,
        "-m",
        "rabbitmq_resilience",
        "find-pods",
        "app=rabbit",
        "--kubeconfig",
        KUBECONFIG,
    ]
    try:
        found = run(find, doing="asking the brokers for a cluster file", cwd=environment.ROOT)
    except Failed as error:
        raise Missing(f"The brokers run, but no cluster file could be written: {error}") from error
    example = _EXAMPLE.read_text(encoding="utf-8")
    for role, key in (("user", "default_user"), ("password", "default_pass")):
        stated = re.search(rf"{key} = (\S+)", example)
        (PLACE / role).write_text(f"{stated[1] if stated else ''}\n", encoding="utf-8")
    CLUSTER_FILE.write_text(completed(found), encoding="utf-8")
    return _stated()


def _stated() -> str:
    return f"three run; their cluster file is {within_root(CLUSTER_FILE)}"


def completed(found: str) -> str:
    """Return the cluster file of ``find-pods`` with its gaps filled in.

    User and password are read from files next to it, and ``allow`` gets the numbers that its comment names."""
    needed = re.search(r"allow: \{.+\}", found)
    for role in ("user", "password"):
        found = re.sub(rf"^{role}:\n  env: \w+$", f"{role}: {{file: {role}}}", found, flags=re.MULTILINE)
    return found.replace("\nallow: {}", f"\n{needed[0]}") if needed else found


def what_next() -> str:
    """Return the command that plays a first scenario on the brokers."""
    play = f".venv/bin/python -m pytest --cluster {within_root(CLUSTER_FILE)} faults/platforms/minority_zone.fault.yaml"
    return f"A first scenario on these brokers:\n  {play}"


def _suite() -> str:
    checkout = str(environment.ROOT)
    _script("suite.sh", str(environment.PYTHON), checkout, doing="making an image of this checkout, for all nodes")
    return f"local/resilience:1, in {within_root(PLACE / 'images')} and on the running nodes"


def stop() -> str:
    """Stop the Kubernetes that set-up started; return a text that says what was done."""
    if not (PLACE / "run").exists():
        return "No Kubernetes that set-up started is running; others are left alone."
    _script("down.sh", doing="ending the nodes")
    CLUSTER_FILE.unlink(missing_ok=True)
    return "Kubernetes has ended; its packages are still installed."


STEPS = (
    environment.STEP,
    SetupTask("Packages of Kubernetes", _packages_found, _packages),
    SetupTask("Programs of Kubernetes", _programs_found, _programs),
    SetupTask("Images for pods", _images_found, _images),
    SetupTask("Kubernetes", _cluster_found, _cluster),
    SetupTask("Brokers", _brokers_found, _brokers),
)
#: The steps of ``make kubernetes-suite``. The image is made again each time, from the current state of the checkout.
SUITE = (
    environment.STEP,
    SetupTask("Packages of Kubernetes", _packages_found, _packages),
    SetupTask("Image of the suite", lambda: None, _suite),
)
