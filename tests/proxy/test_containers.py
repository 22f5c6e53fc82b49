"""The container files say what our own parser takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from lockstitch.cli import command, parser
from lockstitch.cli.serving import _settings

ROOT = Path(__file__).parents[2]


def dockerfile() -> dict[str, list[str]]:
    """The last of every instruction that is written as a list."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    found = re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)
    return {name: json.loads(words) for name, words in found}


def parsed(words: list[str]) -> dict[str, Any]:
    return dict(parser.parse(command("proxy"), words).values)


def test_the_image_starts_the_proxy() -> None:
    said = dockerfile()
    assert said["ENTRYPOINT"] == ["lockstitch", "proxy"]
    assert parsed(said["CMD"])["host"] == "0.0.0.0"  # noqa: S104 - in a container


def test_the_image_copies_what_is_there() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())


def test_the_services_start_the_proxy_with_a_store(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    values = parsed(services["proxy"]["command"])
    assert values["record"].startswith("postgresql://lockstitch@store/")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    assert values["token_file"] == "/run/secrets/token"  # noqa: S105 - a path
    given = {"host": values["host"], "workers": int(values["workers"]), "record": values["record"]}
    settings = _settings(None, None, str(token), given)
    assert (settings.workers, settings.token) == (2, "0123456789abcdef0123456789abcdef")
    assert services["proxy"]["ports"] == ["127.0.0.1:8484:8484"]
