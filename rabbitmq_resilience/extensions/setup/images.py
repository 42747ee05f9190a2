"""Build container images on machines that cannot pull them.

Brokers and programs come from Debian's packages, Toxiproxy from the program that set-up provides. An existing image
of the same recipe is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import CONFLICT
from pathlib import Path

import docker
from docker.errors import APIError
from docker.models.images import Image as Built

from rabbitmq_resilience.extensions.setup import engine, mmdebstrap, toxiproxy_package
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask
from rabbitmq_resilience.tools import image_names as images
from rabbitmq_resilience.tools.docker_client import image_tags
from rabbitmq_resilience.tools.image_names import Image
from rabbitmq_resilience.tools.progress import Failed, ProgressLine, megabytes

LABEL = f"{images.LABEL}={images.LABEL_VALUE}"
PROOF = "proof"
RECIPE_LABEL = f"{images.LABEL}.recipe"

#: How long the engine may take for one request.
WORK_S = 900
_CHUNK_BYTES = 1 << 20

#: A user that no image has: in a run, the user who starts a container owns the folders that are mounted into it.
ANYBODY = "54321:54321"

_CANNOT = """\
The image {name} could not be built: {why}
How to provide it: a machine that can pull images needs no built ones and uses the official one
({official}); or build it elsewhere, and bring it here with `docker save` and `docker load`."""


@dataclass(frozen=True)
class Recipe:
    """How an image is made.

    ``packages``: arguments of mmdebstrap; without them, the image holds only Toxiproxy. ``changes``: instructions of a
    Dockerfile. ``proof``: a command that runs in a container as a user who owns no files there. It ends with status 0
    if the image is good, and writes ``version x.y.z``.
    """

    image: Image
    packages: tuple[str, ...]
    changes: tuple[str, ...]
    proof: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return a key that changes with all that the image's content depends on, except new versions of packages."""
        parts = [self.image.local, self.image.release, self.packages, mmdebstrap.LEFT_OUT]
        parts += [self.changes, self.proof]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


#: The distribution's rabbitmq-server on PATH changes to the user rabbitmq; this path has the script that it starts.
_BROKER_PATH = "/usr/lib/rabbitmq/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: A cookie is a secret of one cluster, so the image has none. The folders are writable as in the official image.
_BROKER_HOOKS = (
    'rm -f "$1/var/lib/rabbitmq/.erlang.cookie"',
    'chmod 777 "$1/etc/rabbitmq" "$1/var/lib/rabbitmq" "$1/var/lib/rabbitmq/mnesia" "$1/var/log/rabbitmq"',
    'ln -s "/$(cd "$1" && echo usr/lib/*/faketime/libfaketimeMT.so.1)" "$1/usr/local/lib/libfaketime.so"',
)
_BROKER_PROOF = """\
set -e
erl -noinput -eval 'ok = crypto:start(), {module, _} = code:ensure_loaded(compile), halt(0).'
command -v rabbitmq-server rabbitmqctl
touch "$HOME/written" /etc/rabbitmq/written /var/log/rabbitmq/written
tc -V
iptables --version
test "$(LD_PRELOAD=/usr/local/lib/libfaketime.so FAKETIME='@2001-02-03 04:05:06' date +%Y)" = 2001
echo "version $(dpkg-query --show --showformat '${Version}' rabbitmq-server)"
"""


def broker_recipe(image: Image) -> Recipe:
    """Return the recipe of a broker image with what faults need: tc, iptables, and libfaketime.

    libfaketime is at /usr/local/lib/libfaketime.so."""
    include = "--include=rabbitmq-server,iproute2,iptables,libfaketime"
    return Recipe(
        image,
        packages=("--variant=minbase", include, *(f"--customize-hook={hook}" for hook in _BROKER_HOOKS)),
        changes=(
            f"ENV PATH={_BROKER_PATH}",
            "ENV LANG=C.UTF-8",
            "ENV HOME=/var/lib/rabbitmq",
            "EXPOSE 4369 5672 15672 15692 25672",
            'CMD ["rabbitmq-server"]',
        ),
        proof=("sh", "-c", _BROKER_PROOF),
    )


TOXIPROXY = Recipe(
    images.TOXIPROXY,
    packages=(),
    changes=("EXPOSE 8474", 'ENTRYPOINT ["/toxiproxy"]', 'CMD ["-host=0.0.0.0"]'),
    proof=("/toxiproxy", "-version"),
)

PROMETHEUS = Recipe(
    images.PROMETHEUS,
    packages=("--variant=extract", "--include=prometheus", '--extract-hook=mkdir -m 1777 "$1/prometheus"'),
    changes=(
        "EXPOSE 9090",
        "WORKDIR /prometheus",
        'ENTRYPOINT ["/usr/bin/prometheus"]',
        'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
    ),
    proof=("/usr/bin/prometheus", "--version"),
)

#: A shell starts it; the official image has one too.
HAPROXY = Recipe(
    images.HAPROXY,
    packages=("--variant=extract", "--include=haproxy,dash"),
    changes=('CMD ["/usr/sbin/haproxy", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]',),
    proof=("sh", "-c", "exec haproxy -v"),
)

STRESS = Recipe(
    images.STRESS,
    packages=(
        "--variant=extract",
        "--include=stress-ng",
        '--extract-hook=ln -s usr/bin/stress-ng "$1/stress-ng"',
    ),
    changes=("WORKDIR /tmp", 'ENTRYPOINT ["/stress-ng"]'),
    proof=("/stress-ng", "--version"),
)


_MACHINE_PROOF = """\
set -e
command -v rabbitmq-server rabbitmqctl
for program in sshd nft iptables ss systemctl sudo; do test -x "$(PATH=/usr/sbin:$PATH command -v $program)"; done
echo "version $(dpkg-query --show --showformat '${Version}' rabbitmq-server)"
"""

#: The image has no ssh keys, so no user can log in until keys are added. A cookie is a secret of one cluster.
_MACHINE_HOOKS = (
    'rm -f "$1/var/lib/rabbitmq/.erlang.cookie" "$1"/etc/ssh/ssh_host_*',
    'mkdir -p "$1/run/sshd" "$1/root/.ssh" && chmod 700 "$1/root/.ssh"',
)

MACHINE = Recipe(
    images.MACHINE,
    packages=(
        "--variant=minbase",
        "--include=rabbitmq-server,openssh-server,nftables,iptables,iproute2,procps,sudo,systemd-sysv",
        *(f"--customize-hook={hook}" for hook in _MACHINE_HOOKS),
    ),
    changes=("ENV LANG=C.UTF-8", "EXPOSE 22 4369 5672 15672 25672", 'CMD ["/usr/sbin/sshd", "-D", "-e"]'),
    proof=("sh", "-c", _MACHINE_PROOF),
)


def found(recipe: Recipe) -> str | None:
    """Return the name of the image that ``recipe`` has made, or None. Raise ``Missing`` if no engine answers."""
    try:
        with engine.answering() as client:
            there = image_tags(client, label=f"{RECIPE_LABEL}={recipe.key}")
    except Failed as error:
        raise Missing(str(error)) from error
    return min(there, default=None)


def make(recipe: Recipe) -> str:
    """Build, prove and name the image; return its name, which has the version of the packaged program.

    Raise ``Missing`` if that fails."""
    try:
        with tempfile.TemporaryDirectory(prefix="image-", ignore_cleanup_errors=True) as folder:
            archive = Path(folder) / "content.tar"
            fill(archive, recipe)
            with engine.answering(within_s=WORK_S) as client:
                return _named(archive, recipe, client)
    except Failed as error:
        why = str(error).replace("\n", "\n    ")
        raise Missing(_CANNOT.format(name=recipe.image.local, official=recipe.image.official, why=why)) from error


def fill(archive: Path, recipe: Recipe) -> None:
    """Write the whole file system of the image to the tar file ``archive``. Raise ``Failed`` if that fails."""
    if recipe.packages and recipe.image.release:
        mmdebstrap.bootstrap(recipe.image.release, recipe.packages, into=archive)
        return
    program = toxiproxy_package.linux_program()
    with tarfile.open(archive, "w") as content:
        content.add(program, "toxiproxy", filter=_owned_by_root)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755
    return member


def _named(archive: Path, recipe: Recipe, client: docker.DockerClient) -> str:
    """Import ``archive``, and name the image once its proof has succeeded: an unproven image never has the name."""
    labels = (f"LABEL {LABEL}", f"LABEL {RECIPE_LABEL}={recipe.key}")
    image = _imported(archive, client, changes=(*recipe.changes, *labels))
    try:
        version = version_in(run(client, str(image.id), recipe.proof))
        repository = recipe.image.local.rpartition(":")[0]
        if version != recipe.image.version:
            source = f"Debian {recipe.image.release}" if recipe.image.release else "the program"
            print(f"      {source} now has version {version}, not {recipe.image.version}", flush=True)
        image.tag(repository, version)
    except BaseException:
        image.remove(force=True)
        raise
    remove_left_over(client)
    return f"{repository}:{version}"


def _imported(archive: Path, client: docker.DockerClient, *, changes: Sequence[str]) -> Built:
    """Make an image of the tar file of a whole file system, and return it; it has no name yet."""
    doing = "importing the image"
    line = ProgressLine(doing)
    try:
        with closing(_chunks(archive, line)) as body:
            answer = str(client.api.import_image(body, changes=changes))
    finally:
        line.end()
    messages = [json.loads(part) for part in answer.splitlines() if part.strip()]
    for message in messages:
        if "error" in message:
            raise Failed(f"{doing}: {message['error']}")
    if not messages or not str(messages[-1].get("status", "")).startswith("sha256:"):
        raise Failed(f"{doing}: the engine named no image; its answer: {answer[-200:]!r}")
    return client.images.get(messages[-1]["status"])


def _chunks(archive: Path, line: ProgressLine) -> Generator[bytes, None, None]:
    total = megabytes(archive.stat().st_size)
    with archive.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            line.show(f"{megabytes(content.tell())} of {total}")
            yield chunk


def run(client: docker.DockerClient, image: str, command: Sequence[str]) -> str:
    """Run ``command`` to its end in a container without network, as a user who owns no files there; return its output.

    Raise ``Failed`` with the output if the status is not 0.
    """
    container = client.containers.create(
        image,
        [*command[1:]],
        entrypoint=[*command[:1]],
        user=ANYBODY,
        tty=True,
        labels={images.LABEL: PROOF},
        network_mode="none",
        use_config_proxy=False,
    )
    try:
        container.start()
        status = container.wait(timeout=WORK_S)["StatusCode"]
        text = container.logs().decode(errors="replace")
    finally:
        container.remove(force=True)
    if status != 0:
        raise Failed(f"`{' '.join(command)}` ended with status {status} in the container\n{text.strip()}")
    return text.replace("\r\n", "\n")


def remove_left_over(client: docker.DockerClient) -> None:
    """Remove what is no longer needed and at least an hour old.

    These are images that lost their name to newer ones or never got one, and ended containers of proofs."""
    _prune(client.images.prune, {"dangling": True, "label": LABEL, "until": "1h"})
    _prune(client.containers.prune, {"label": f"{images.LABEL}={PROOF}", "until": "1h"})


def _prune(prune: Callable[..., object], filters: dict[str, object]) -> None:
    """Prune, unless another client is pruning: the engine refuses a second request at the same time.

    The next image that is made prunes again."""
    try:
        prune(filters=filters)
    except APIError as error:
        if error.status_code != CONFLICT:
            raise


def version_in(proof: str) -> str:
    """Return the version in the output of a proof. Raise ``Failed`` if there is none."""
    match = re.search(r"\bversion (\d+\.\d+\.\d+)", proof)
    if match is None:
        raise Failed(f"the proof of the image prints no version: {proof.strip()[-200:]!r}")
    return match[1]


def step(recipe: Recipe, *, optional: bool = False) -> SetupTask:
    title = f"Image {recipe.image.local}"
    return SetupTask(title, partial(found, recipe), partial(make, recipe), optional=optional)


def steps(versions: Sequence[str]) -> tuple[SetupTask, ...]:
    """Return all steps up to the images of these broker versions, or of all known ones.

    If all are requested, each may be missing, as releases leave mirrors. Raise ``Missing`` for a version that no Debian
    release holds."""
    known = {image.version: image for image in images.BROKERS}
    unknown = [version for version in versions if version not in known]
    if unknown:
        raise Missing(
            f"No Debian release is known that holds RabbitMQ {', '.join(unknown)}; known are {', '.join(known)}.\n"
            "Other versions have to be pulled: the official images are used if there is no local one."
        )
    wanted = [known[version] for version in versions or known]
    brokers = (step(broker_recipe(image), optional=not versions) for image in wanted)
    programs = (step(recipe, optional=True) for recipe in (PROMETHEUS, HAPROXY, STRESS, MACHINE))
    return (engine.STEP, mmdebstrap.STEP, step(TOXIPROXY), *brokers, *programs)
