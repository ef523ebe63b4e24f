"""Writes what the Helm chart and the docs say after the code: `python dev/chart.py`; `--check` only compares.

Made are: the kinds that the ClusterRole lets it watch; the schema and the table of the chart's values; the copies of
the CRD, the alerts and the dashboard in the chart; and the tables of the configuration file and of the metrics.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.metrics import MetricWrapperBase

from muster.engine.config import Config
from muster.kube.kinds import STRUCTS
from muster.service.scheduler.figures import Figures
from muster.service.scheduler.settings import LeaderElection, SchedulerSettings, Telemetry

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "muster"
OF_THE_CHART = {"apiVersion", "kind", "shadow", "leaderElection"}
"""Fields of the configuration file that are not values of the chart: it sets them by itself."""
FIXED = {"apiVersion": "which version of this file it is", "kind": "what it is"}
"""Fields that every file has with the same value."""
CONFIG_PAGE, METRICS_PAGE = "docs/reference/scheduler-config.md", "docs/reference/scheduler-metrics.md"


def made() -> dict[Path, str]:
    """What each file that is made must hold."""
    return {
        CHART / "files" / "kinds.yaml": kinds(),
        CHART / "files" / "rules.yaml": (DEPLOY / "prometheus" / "rules.yaml").read_text(),
        CHART / "files" / "dashboard.json": (DEPLOY / "grafana" / "muster.json").read_text(),
        CHART / "crds" / "queues.muster.dev.yaml": (DEPLOY / "crds" / "queues.muster.dev.yaml").read_text(),
        CHART / "values.schema.json": values_schema(),
        CHART / "README.md": between(CHART / "README.md", "values", values_table()),
        ROOT / CONFIG_PAGE: between(
            ROOT / CONFIG_PAGE,
            "leader",
            fields_table(LeaderElection),
            "telemetry",
            fields_table(Telemetry),
            "fields",
            fields_table(SchedulerSettings),
        ),
        ROOT / METRICS_PAGE: between(ROOT / METRICS_PAGE, "metrics", metrics_table()),
    }


def kinds() -> str:
    """The resources that are listed and watched, by API group."""
    groups: dict[str, list[str]] = {}
    for kind in STRUCTS:
        groups.setdefault(kind.group, []).append(kind.resource)
    lines = "".join(
        f"  - group: {json.dumps(group)}\n    resources: [{', '.join(resources)}]\n"
        for group, resources in groups.items()
    )
    return f"# Made by dev/chart.py from the kinds that Muster reads (src/muster/kube/kinds.py).\nkinds:\n{lines}"


def values_schema() -> str:
    """The schema of the chart's values; the part `config` is that of the configuration file."""
    path = CHART / "values.schema.json"
    schema: dict[str, Any] = json.loads(path.read_text())
    file = msgspec.json.schema(SchedulerSettings)["$defs"]
    engine = msgspec.json.schema(Config)["$defs"]["Config"]
    fields = {name: of for name, of in file["SchedulerSettings"]["properties"].items() if name not in OF_THE_CHART}
    fields["scheduling"] = _strict(engine["properties"])
    lease = file["LeaderElection"]["properties"]
    fields["telemetry"] = _strict(file["Telemetry"]["properties"])
    fields["leaderElection"] = _strict({"durationSeconds": lease["durationSeconds"]})
    schema["properties"]["config"] = _strict(fields)
    return json.dumps(schema, indent=2) + "\n"


def _strict(properties: dict[str, Any]) -> dict[str, Any]:
    without = {name: {key: of[key] for key in of if key != "default"} for name, of in properties.items()}
    return {"type": "object", "additionalProperties": False, "properties": without}


def values_table() -> str:
    """Each value of the chart with its default and the comment above it."""
    rows = [f"| `{path}` | {default} | {about} |" for path, default, about in values()]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def values() -> Iterator[tuple[str, str, str]]:
    """Path, default (as Markdown) and comment of each value that has a comment."""
    path: list[str] = []
    said: list[str] = []
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith("#"):
            said.append(line.strip()[1:].strip())
            continue
        found = re.match(r"^( *)([A-Za-z]+):(?: (.*))?$", line)
        if found is None:
            said = []
            continue
        path[len(found[1]) // 2 :] = [found[2]]
        if said:
            default = found[3] or " ".join(_below(lines, number, len(found[1])))
            yield ".".join(path), f"`{default}`" if default else "", " ".join(said)
        said = []


def _below(lines: list[str], number: int, deep: int) -> Iterator[str]:
    """The lines that are part of a value that is a mapping, in one line; nothing where its own values are told."""
    inside: list[str] = []
    for line in lines[number + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= deep:
            break
        inside.append(line.strip())
    yield from () if any(line.startswith("#") for line in inside) else (line for line in inside if line)


def fields_table(struct: type[msgspec.Struct]) -> str:
    """Each field of a part of the configuration file with its default, what it may be and what it means."""
    meanings = _meanings(inspect.getdoc(struct) or "")
    properties = msgspec.json.schema(struct)["$defs"][struct.__name__]["properties"]
    rows: list[str] = []
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
        shown = "" if callable(default) else f"`{json.dumps(default)}`"
        meaning = meanings.get(field.name, FIXED.get(name, ""))
        rows.append(f"| `{name}` | {shown} | {_range(properties[name])} | {meaning} |")
    return "\n".join(["| field | default | may be | meaning |", "|---|---|---|---|", *rows])


def _meanings(text: str) -> dict[str, str]:
    """What the docstring's Attributes say, as Markdown."""
    part = text.partition("Attributes:\n")[2].replace("``", "`")
    found = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", part, re.MULTILINE)
    return {name: _linked(" ".join(about.split()).removesuffix(".")) for name, about in found}


def _linked(text: str) -> str:
    """References to other parts of the file as links."""
    return text.replace("`LeaderElection`", "[below](#leaderelection)").replace("`Telemetry`", "[below](#telemetry)")


def _range(of: dict[str, Any]) -> str:
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true, false", "string": "text"}
    above, most = of.get("minimum", of.get("exclusiveMinimum")), of.get("maximum")
    if above is None:
        return kind.get(of.get("type", ""), "a mapping")
    return f"{'above ' if 'exclusiveMinimum' in of else ''}{above:g} to {most:.9g}"


def metrics_table() -> str:
    """Each metric of the scheduler with its kind, labels and meaning."""
    rows: list[str] = []
    for name, kind, labels, about in sorted(metrics()):
        rows.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {about} |")
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def metrics() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name as Prometheus stores it, kind, labels and help of each metric of the running scheduler."""
    for collector in vars(Figures()).values():
        if isinstance(collector, MetricWrapperBase):
            (metric,) = collector.describe()
            suffix = "_total" if metric.type == "counter" else ""
            yield metric.name + suffix, metric.type, _labels(collector), metric.documentation


def _labels(collector: MetricWrapperBase) -> tuple[str, ...]:
    return tuple(map(str, collector._labelnames))  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownArgumentType]


def between(path: Path, *parts: str) -> str:
    """The text of a page with other text between ``<!-- NAME -->`` and ``<!-- end -->``; parts are name, text ..."""
    text = path.read_text()
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        pattern = re.compile(rf"(<!-- {name}[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
        text, times = pattern.subn(lambda found, body=body: f"{found[1]}{body}\n{found[2]}", text)
        if times != 1:
            raise SystemExit(f"{path}: has '<!-- {name} ... -->' {times} times, not once")
    return text


def main() -> int:
    """Write what differs; with ``--check``, only tell it."""
    check = sys.argv[1:] == ["--check"]
    differ = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    for path in differ:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made()[path])
        sys.stdout.write(f"{'differs' if check else 'written'}: {path.relative_to(ROOT)}\n")
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
