"""What images are made of, and that one which is not good never has its name."""

from __future__ import annotations

import tarfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import docker
import pytest

from rabbitmq_resilience.extensions.setup import debian, images, mmdebstrap, setup_command, toxiproxy_package
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing
from rabbitmq_resilience.tools import progress
from rabbitmq_resilience.tools.docker_client import image_tags
from rabbitmq_resilience.tools.image_names import BROKERS, LABEL, Image
from rabbitmq_resilience.tools.progress import Failed
from tests.messages import Messages
from tests.tools.programs import program


class Recipes(Protocol):
    def __call__(self, version: str = ..., *, proof: tuple[str, ...] = ...) -> images.Recipe: ...


@pytest.fixture
def recipe(engine: docker.DockerClient) -> Iterator[Recipes]:
    """Makes recipes of the test's own, for images with Toxiproxy, which are removed after it. Skips without one to put
    into them."""
    if not toxiproxy_package.STAMP.exists():
        pytest.skip("set-up has not provided Toxiproxy: that on PATH may need libraries")
    given: list[images.Recipe] = []

    def new(
        version: str = toxiproxy_package.VERSION, *, proof: tuple[str, ...] = images.TOXIPROXY.proof
    ) -> images.Recipe:
        name = f"test-{uuid.uuid4().hex}"
        image = Image(version, f"official/{name}:{version}", f"{LABEL}/{name}:{version}")
        given.append(images.Recipe(image, (), images.TOXIPROXY.changes, proof))
        return given[-1]

    yield new
    for image in [image for one in given for image in made_by(one, engine)]:
        image.remove(force=True)


def made_by(recipe: images.Recipe, engine: docker.DockerClient) -> list[Any]:
    """The images, named or not."""
    return engine.images.list(filters={"label": f"{images.RECIPE_LABEL}={recipe.key}"})


@pytest.mark.engine
def test_an_image_is_named_once_its_proof_has_ended_well(
    recipe: Recipes, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "TICK_S", 0.0)
    mine = recipe()
    assert images.found(mine) is None
    assert images.make(mine) == mine.image.local
    assert images.found(mine) == mine.image.local
    (image,) = made_by(mine, engine)
    assert image.tags == [mine.image.local]
    assert image.labels[LABEL] == "image"
    assert image.attrs["Config"]["Entrypoint"] == ["/toxiproxy"]
    assert engine.containers.list(all=True, filters={"ancestor": image.id}) == []
    assert ": 1.0 MB of " in capsys.readouterr().out


@pytest.mark.engine
def test_an_image_whose_proof_fails_is_removed(recipe: Recipes, engine: docker.DockerClient) -> None:
    mine = recipe(proof=("/toxiproxy", "-wrong"))
    with pytest.raises(Missing, match=r"`/toxiproxy -wrong` (.|\n)*-wrong") as missing:
        images.make(mine)
    assert mine.image.official in str(missing.value)
    assert made_by(mine, engine) == []


@pytest.mark.engine
def test_an_image_whose_proof_is_interrupted_is_removed(
    recipe: Recipes, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    mine = recipe()
    monkeypatch.setattr(images, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        images.make(mine)
    assert made_by(mine, engine) == []


@pytest.mark.engine
def test_an_import_that_breaks_off_is_reported(
    recipe: Recipes, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = recipe()
    monkeypatch.setattr(images, "fill", lambda archive, _: archive.write_bytes(b"no tar" * 1000))
    with pytest.raises(Missing, match="invalid tar header"):
        images.make(mine)
    assert made_by(mine, engine) == []


@pytest.mark.engine
def test_a_release_that_moved_on_gives_the_image_its_version(
    recipe: Recipes, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = recipe("2.0.0")
    assert images.make(mine) == mine.image.local.replace(":2.0.0", f":{toxiproxy_package.VERSION}")
    told = capsys.readouterr().out
    assert toxiproxy_package.VERSION in told
    assert "2.0.0" in told


@pytest.mark.engine
def test_many_may_clear_up_at_once(engine: docker.DockerClient) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda _: images.remove_left_over(engine), range(40)))


@pytest.mark.engine
def test_an_image_that_somebody_removes_disturbs_no_look(recipe: Recipes, engine: docker.DockerClient) -> None:
    def looked(_: int) -> bool:
        return mine.image.local in image_tags(engine)

    mine = recipe()
    for _ in range(5):
        images.make(mine)
        (image,) = made_by(mine, engine)
        with ThreadPoolExecutor(max_workers=4) as pool:
            removed = pool.submit(image.remove, force=True)
            list(pool.map(looked, range(20)))
        removed.result()
        assert images.found(mine) is None


@pytest.mark.core
@pytest.mark.core
@pytest.mark.usefixtures("socket_file")
def test_without_an_engine_it_says_so(message: Messages) -> None:
    with message.of(Missing, hide={r"unix:///\S*/docker\.sock": "unix://SOCKET"}):
        images.found(images.TOXIPROXY)


def test_no_two_recipes_have_the_same_key() -> None:
    recipes = [*map(images.broker_recipe, BROKERS), images.TOXIPROXY, images.PROMETHEUS, images.STRESS]
    assert len({recipe.key for recipe in recipes}) == len(recipes)


@pytest.mark.usefixtures("path")
def test_toxiproxy_is_alone_in_its_image(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = program(tools / "bin" / "toxiproxy-server", "echo served")
    (tools / "bin" / "toxiproxy-version").write_text(toxiproxy_package.VERSION)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    archive = tmp_path / "content.tar"
    images.fill(archive, images.TOXIPROXY)
    with tarfile.open(archive) as content:
        (member,) = content.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("toxiproxy", 0o755, 0, 0)
        assert member.size == server.stat().st_size
    assert images.TOXIPROXY.image.version == toxiproxy_package.VERSION


def test_a_version_that_is_asked_for_must_be_had_and_the_others_may() -> None:
    titles = {step.title: step.optional for step in images.steps(["3.8.9"])}
    assert titles["Image rabbitmq-resilience/rabbitmq:3.8.9"] is False
    assert "Image rabbitmq-resilience/rabbitmq:3.10.8" not in titles
    every = {step.title: step.optional for step in images.steps([])}
    assert all(every[f"Image {image.local}"] for image in BROKERS)
    assert every["Image rabbitmq-resilience/toxiproxy:2.12.0"] is False


def test_a_version_that_no_release_holds_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    assert setup_command.main(["images", "3.8.9", "3.12.4"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "3.12.4" in err
    message(err)


TARGETS = """\
Shop|bookworm|main|http://shop.example/apt/
Debian|bookworm-security|main|http://mirror.example/debian-security/
Debian|bookworm|contrib|http://contrib.example/debian/
Debian|bookworm|main|http://mirror.example/debian/
"""


def test_the_mirror_is_where_apt_has_debian_from() -> None:
    assert debian.mirror(TARGETS, own_release="bookworm") == "http://mirror.example/debian/"


def test_before_the_first_update_the_mirror_is_where_the_own_release_is_from() -> None:
    unread = "$(ORIGIN)|bookworm|main|http://mirror.example/debian/\n$(ORIGIN)|stable|main|http://shop.example/\n"
    assert debian.mirror(unread, own_release="bookworm") == "http://mirror.example/debian/"


def test_where_apt_lists_no_target_the_mirror_is_what_it_would_ask() -> None:
    uris = (
        "'http://mirror.example/debian-security/dists/bookworm-security/InRelease' a 0 \n"
        "'http://mirror.example/debian/dists/bookworm/InRelease' b 0 \n"
    )
    assert debian.mirror_asked(uris, own_release="bookworm") == "http://mirror.example/debian/"
    assert not debian.mirror_asked(uris, own_release="trixie")
    assert not debian.mirror_asked(uris, own_release=None)


@pytest.mark.parametrize("targets", ["", "Ubuntu|noble|main|http://mirror.example/ubuntu/\n"])
def test_without_a_mirror_of_debian_it_says_so(targets: str, message: Messages) -> None:
    with message.of(Failed):
        debian.mirror(targets, own_release=None)


@pytest.mark.usefixtures("path", "tools")
def test_without_apt_it_says_how_to_provide_mmdebstrap(message: Messages) -> None:
    assert mmdebstrap.found() is None
    with message.of(Missing):
        mmdebstrap.make()
