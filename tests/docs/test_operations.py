"""The files of ``deploy``: their options, metrics and labels exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import httpx
import pytest
import yaml

from posh import cli
from posh.client import Client
from posh.serve.sources import Folder
from tests.collection.implementations import DATA
from tests.docs.pages import ROOT
from tests.serve.service import running

DEPLOY = ROOT / "deploy"
RULES = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DEPLOY / "dashboard.json").read_text())
PAGE = (ROOT / "docs" / "operations.md").read_text()
METRIC = re.compile(r"\b((?:posh|process)_\w+)(?:\{([^}]*)\})?")
OWN_LABELS = {"job", "instance"}  # of Prometheus, which scrapes


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """The names in ``/metrics``, each with its labels."""
    root = tmp_path_factory.mktemp("served")
    with (
        running(Folder(root / "served", backups=root / "backups")) as address,
        Client(address) as client,
    ):
        shop = client.create("shop", metric="cosine").upsert(range(100), DATA[:100])
        shop.search(DATA[:1], 1)
        shop.backup("copy")
        text = httpx.get(f"{address}/metrics").text
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["query"] for variable in DASHBOARD["templating"]["list"])


@pytest.mark.parametrize("expression", list(expressions()))
def test_metrics_and_labels_of_an_expression_exist(expression, metrics):
    named = METRIC.findall(expression)
    for name, labels in named:
        assert name in metrics, name
        used = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", labels))
        assert used <= metrics[name] | OWN_LABELS, (name, used)
    assert expression.count("(") == expression.count(")")


def test_every_metric_of_the_page_exists_and_every_own_metric_is_on_it(metrics):
    named = set(re.findall(r"`((?:posh|process)_\w+)`", PAGE))
    names = {name for name in metrics if not name.endswith("_created")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    assert named <= families | set(metrics)
    assert {name for name in families if name.startswith("posh_")} <= named


def test_labels_in_summaries_exist(metrics):
    for rule in RULES:
        labels = set().union(*(metrics[name] for name, _ in METRIC.findall(rule["expr"]) if name in metrics))
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels


def test_panels_do_not_overlap():
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def commands() -> dict[str, list[str]]:
    """The arguments of ``posh`` in each file."""
    docker = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    unit = (DEPLOY / "posh.service").read_text().replace("\\\n", " ")
    return {
        "Dockerfile": json.loads(re.search(r"^CMD (.*)$", docker, re.MULTILINE)[1]),
        "posh.service": shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1])[1:],
    }


@pytest.mark.parametrize("name", ["Dockerfile", "posh.service"])
def test_the_command_line_is_one_of_posh(name):
    arguments = commands()[name]
    args = cli._build_parser(arguments).parse_args(arguments)
    assert (args.command, args.token_file is None) == ("serve", False)


def test_the_image_has_all_that_the_build_needs():
    """All files that ``pyproject.toml`` names, and none of the others."""
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines[1:]} == {
        "CMakeLists.txt",
        "LICENSE",
        "README.md",
        "native",
        "pyproject.toml",
        "src",
    }
