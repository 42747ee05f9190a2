"""What images are made of, and that one which is not good never has its name."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from setup import __main__ as command
from setup import images, mmdebstrap, toxiproxy
from setup.progress import Failed
from setup.steps import Missing
from tests.setup.fake_engine import IMPORTED, FakeEngine
from tests.setup.programs import program
from topologies.images import BROKERS

BOOKWORM = images.broker_recipe(BROKERS[1])
TAG = f"POST /images/{IMPORTED}/tag"
REMOVE = f"DELETE /images/{IMPORTED}"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An mmdebstrap that is done at once."""
    monkeypatch.setattr(mmdebstrap, "bootstrap", lambda release, _, *, into: into.write_text(f"all of {release}"))


@pytest.mark.usefixtures("packages")
def test_an_image_is_named_after_its_proof_ended_well(fake: FakeEngine) -> None:
    assert images.make(BOOKWORM) == "rabbitmq-resilience/rabbitmq:3.10.8"
    assert fake.archive == b"all of bookworm"
    assert fake.query(TAG) == [("repo", "rabbitmq-resilience/rabbitmq"), ("tag", "3.10.8")]
    calls = fake.calls()
    assert calls.index("POST /containers/c1/wait") < calls.index("DELETE /containers/c1") < calls.index(TAG)
    changes = [value for name, value in fake.query("POST /images/create") if name == "changes"]
    assert "LABEL rabbitmq-resilience=image" in changes
    assert f"LABEL rabbitmq-resilience.recipe={BOOKWORM.key}" in changes
    assert fake.containers[0]["User"] == images.ANYBODY
    assert fake.containers[0]["Labels"] == {"rabbitmq-resilience": "proof"}
    assert REMOVE not in calls


@pytest.mark.usefixtures("packages")
def test_an_image_whose_proof_fails_is_removed_and_never_named(fake: FakeEngine) -> None:
    fake.proof = (127, "sh: 1: tc: not found\r\n")
    with pytest.raises(Missing, match=r"rabbitmq:3\.10\.8 could not be built: (.|\n)*tc: not found") as missing:
        images.make(BOOKWORM)
    assert "rabbitmq:3.10.8-management" in str(missing.value)
    assert fake.calls()[-2:] == ["DELETE /containers/c1", REMOVE]
    assert TAG not in fake.calls()


@pytest.mark.usefixtures("packages")
def test_an_import_that_breaks_off_is_told(fake: FakeEngine) -> None:
    fake.imported = {"error": "no space left on device"}
    with pytest.raises(Missing, match="importing the image: no space left on device"):
        images.make(BOOKWORM)
    assert TAG not in fake.calls()


@pytest.mark.usefixtures("packages")
def test_a_release_that_moved_on_gives_the_image_its_version(
    fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.proof = (0, "version 4.4.0-1\r\n")
    assert images.make(images.broker_recipe(BROKERS[-1])) == "rabbitmq-resilience/rabbitmq:4.4.0"
    assert "Debian sid is version 4.4.0 by now, not 4.3.6" in capsys.readouterr().out


def test_what_the_same_recipe_made_is_kept(fake: FakeEngine) -> None:
    assert images.found(BOOKWORM) is None
    fake.tags = ["rabbitmq-resilience/rabbitmq:3.10.8"]
    assert images.found(BOOKWORM) == "rabbitmq-resilience/rabbitmq:3.10.8"
    assert fake.query("GET /images/json") == [
        ("filters", f'{{"label": ["rabbitmq-resilience.recipe={BOOKWORM.key}"]}}')
    ]


def test_no_two_recipes_have_the_same_key() -> None:
    recipes = [*map(images.broker_recipe, BROKERS), images.TOXIPROXY, images.PROMETHEUS, images.STRESS]
    assert len({recipe.key for recipe in recipes}) == len(recipes)


@pytest.mark.usefixtures("path")
def test_toxiproxy_is_alone_in_its_image(tools: Path, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    server = program(tools / "bin" / "toxiproxy-server", "echo served")
    (tools / "bin" / "toxiproxy-version").write_text(toxiproxy.VERSION)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    fake.proof = (0, f"toxiproxy-server version {toxiproxy.VERSION}\r\n")
    assert images.make(images.TOXIPROXY) == f"rabbitmq-resilience/toxiproxy:{toxiproxy.VERSION}"
    with tarfile.open(fileobj=io.BytesIO(fake.archive)) as content:
        (member,) = content.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("toxiproxy", 0o755, 0, 0)
        assert member.size == server.stat().st_size
    assert images.TOXIPROXY.image.version == toxiproxy.VERSION


def test_a_version_that_is_asked_for_must_be_had_and_the_others_may() -> None:
    titles = {step.title: step.optional for step in images.steps(["3.8.9"])}
    assert titles["Image rabbitmq-resilience/rabbitmq:3.8.9"] is False
    assert "Image rabbitmq-resilience/rabbitmq:3.10.8" not in titles
    every = {step.title: step.optional for step in images.steps([])}
    assert all(every[f"Image {image.local}"] for image in BROKERS)
    assert every["Image rabbitmq-resilience/toxiproxy:2.12.0"] is False


def test_a_version_that_no_release_holds_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["images", "3.8.9", "3.12.4"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "holds RabbitMQ 3.12.4; known are 3.8.9, 3.10.8, 4.0.5, 4.3.6" in err


TARGETS = """\
Shop|bookworm|main|http://shop.example/apt/
Debian|bookworm-security|main|http://mirror.example/debian-security/
Debian|bookworm|contrib|http://contrib.example/debian/
Debian|bookworm|main|http://mirror.example/debian/
"""


def test_the_mirror_is_where_apt_has_debian_from() -> None:
    assert mmdebstrap.mirror(TARGETS, own_release="bookworm") == "http://mirror.example/debian/"


def test_before_the_first_update_the_mirror_is_where_the_own_release_is_from() -> None:
    unread = "$(ORIGIN)|bookworm|main|http://mirror.example/debian/\n$(ORIGIN)|stable|main|http://shop.example/\n"
    assert mmdebstrap.mirror(unread, own_release="bookworm") == "http://mirror.example/debian/"


@pytest.mark.parametrize("targets", ["", "Ubuntu|noble|main|http://mirror.example/ubuntu/\n"])
def test_without_a_mirror_of_debian_it_says_so(targets: str) -> None:
    with pytest.raises(Failed, match="apt knows no mirror of Debian"):
        mmdebstrap.mirror(targets, own_release=None)


@pytest.mark.usefixtures("path", "tools")
def test_without_apt_it_says_how_to_provide_mmdebstrap() -> None:
    assert mmdebstrap.found() is None
    with pytest.raises(Missing, match="there is no apt-get here"):
        mmdebstrap.make()
