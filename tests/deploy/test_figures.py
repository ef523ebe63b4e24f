"""Dashboard and alerts: every metric in them is one that the code has, with its labels and their values."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from chart import made, metrics
from muster.answers.sources import open_view
from muster.backends.kubernetes.commit import Outcome
from muster.model.reasons import Reason
from muster.service.metrics import GPUS, SHARES, registry_of
from muster.service.scheduler.writer import Bind, Stop
from rendered import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/muster.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
EXAMPLE, AT_S = str(ROOT / "examples" / "fragmented.yaml"), 10_800.0
"""A cluster in which some gangs run and others wait."""
PROCESS = {"process_cpu_seconds_total": (), "process_resident_memory_bytes": ()}
"""Of the process itself, as every client of Prometheus has them."""
OUTSIDE = {"job", "instance", "pod", "namespace", "le"}
"""Labels that Prometheus adds."""
VALUES = {
    "reason": {reason.name.lower() for reason in Reason},
    "outcome": {outcome.value for outcome in Outcome},
    "kind": {Bind.__name__.lower(), Stop.__name__.lower()},
    "state": {*GPUS, "open"},
    "what": set(SHARES),
}
"""What a label may say where a query names it."""

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d[\d.]*(?:e[+-]?\d+)?)(?![a-zA-Z_])'
    r"|(?P<range>\[[^\]]+\])|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},<>=]))"
)
_FUNCTIONS = {
    "sum", "max", "min", "avg", "by", "rate", "delta", "histogram_quantile", "absent", "vector", "or", "and", "unless",
    "time", "min_over_time", "max_over_time",
}  # fmt: skip


def tokens(text: str) -> list[tuple[str, str]]:
    """A PromQL expression as (kind, text); fails on what it does not know."""
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, f"cannot read {text[at:]!r} of {text!r}"
        assert match.lastgroup
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def selectors(text: str) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    """Each metric of an expression with its matchers: label -> (sign, value)."""
    found = tokens(text)
    depth = Counter(sign for kind, sign in found if kind == "sign")
    assert depth["("] == depth[")"], text
    assert depth["{"] == depth["}"], text
    at = 0
    while at < len(found):
        kind, word = found[at]
        at += 1
        if kind != "name" or word in _FUNCTIONS:
            if word == "by":
                at = found.index(("sign", ")"), at) + 1
            continue
        matchers: dict[str, tuple[str, str]] = {}
        if at < len(found) and found[at] == ("sign", "{"):
            end = found.index(("sign", "}"), at)
            inside = [each for each in found[at + 1 : end] if each != ("sign", ",")]
            assert len(inside) % 3 == 0, text
            for (_, label), (_, sign), (_, value) in zip(inside[::3], inside[1::3], inside[2::3], strict=True):
                matchers[label] = sign, json.loads(value)
            at = end + 1
        yield word, matchers


def grouped(text: str) -> set[str]:
    """The labels that an expression groups by."""
    return {label.strip() for part in re.findall(r"\bby\s*\(([^)]*)\)", text) for label in part.split(",")}


@cache
def known() -> dict[str, tuple[str, ...]]:
    """All metrics of the code by the name that Prometheus stores them under, with their labels."""
    found: dict[str, tuple[str, ...]] = dict(PROCESS)
    for name, kind, labels, _ in metrics():
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + suffix] = labels
    for family in registry_of(lambda: open_view(EXAMPLE, AT_S)[0]).collect():
        labels = tuple(dict.fromkeys(label for sample in family.samples for label in sample.labels))
        found[family.name] = tuple(dict.fromkeys((*found.get(family.name, ()), *labels)))
    return found


def check(text: str) -> None:
    """Every metric, label and value of an expression is there."""
    metrics = known()
    labels: set[str] = set()
    for name, matchers in selectors(text):
        assert name in metrics, f"{name} is no metric: {text}"
        labels |= set(metrics[name])
        for label, (sign, value) in matchers.items():
            assert label in {*metrics[name], *OUTSIDE}, f"{name} has no label {label}: {text}"
            if label in VALUES:
                values = value.split("|") if sign in ("=~", "!~") else [value]
                assert set(values) <= VALUES[label], f"{label} is never {value}: {text}"
    assert grouped(text) <= labels | OUTSIDE, text


def panels() -> list[dict[str, Any]]:
    return [panel for each in DASHBOARD["panels"] for panel in (each, *each.get("panels", []))]


QUERIES = [(panel["title"], target["expr"]) for panel in panels() for target in panel.get("targets", [])]


@pytest.mark.parametrize(("title", "text"), QUERIES, ids=lambda each: each[:60])
def test_the_dashboard_asks_for_what_is_there(title: str, text: str) -> None:
    check(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_alerts_ask_for_what_is_there(rule: dict[str, Any]) -> None:
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert used <= grouped(rule["expr"]), "a label that the query does not keep"


@pytest.mark.parametrize(
    "text",
    [
        "sum(muster_no_such_metric)",
        'muster_writes_total{verb="bind"}',
        'muster_writes_total{outcome="lost"}',
        'muster_pending_gangs{reason=~"quota|hunger"}',
        "sum by (colour) (muster_partial_gangs)",
        "muster_schedule_attempts",  # a counter is stored with _total
        "sum(muster_partial_gangs",
    ],
)
def test_a_query_for_what_is_not_there_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check(text)


def test_every_metric_of_the_scheduler_is_on_the_dashboard() -> None:
    asked = {name.removesuffix("_bucket") for _, text in QUERIES for name, _ in selectors(text)}
    wanted = {re.sub("_(bucket|sum|count)$", "", name) for name in known()}
    assert wanted - asked == set()


def test_panels_have_numbers_places_and_words_of_their_own() -> None:
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns = range(place["x"], place["x"] + place["w"])
        covered = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & covered, panel["title"]
        cells |= covered
        assert panel["type"] == "row" or (panel["description"] and panel["targets"])


def test_the_data_source_is_the_readers_own() -> None:
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"]
    assert variable["query"] == "prometheus"
    assert "__inputs" not in DASHBOARD
    for panel in panels():
        for part in [panel, *panel.get("targets", [])]:
            if panel["type"] != "row":
                assert part["datasource"] == {"type": "prometheus", "uid": f"${{{variable['name']}}}"}


def test_variables_are_there_and_used() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"}
    used = {name for _, text in QUERIES for name in re.findall(r"\$(\w+)", text)} - {"__rate_interval"}
    assert used == set(variables)
    for each in variables.values():
        metric = re.fullmatch(r"label_values\((\w+), job\)", each["definition"])
        assert metric is not None
        assert metric[1] in known()


def test_each_alert_is_told_in_the_docs() -> None:
    page = (ROOT / "docs/reference/scheduler-metrics.md").read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_files_that_are_made_are_up_to_date() -> None:
    """`python dev/chart.py` writes them."""
    stale = [str(path.relative_to(ROOT)) for path, text in made().items() if path.read_text() != text]
    assert not stale, f"run: python dev/chart.py  ({', '.join(stale)})"


def test_the_chart_has_the_same_version_as_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy/helm/muster/Chart.yaml").read_text())
    assert chart["appVersion"] == version
    assert chart["version"] == version
