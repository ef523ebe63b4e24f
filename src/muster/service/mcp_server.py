"""A read-only MCP server over the answers: why, fit, queue, fleet, whatif (https://modelcontextprotocol.io)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from muster import __version__
from muster.answers.changes import parse_change
from muster.answers.documents import fleet_document, queue_document, why_document
from muster.answers.fit import MOST_EXPLAINED, Asked, changes_that_fit, fit
from muster.answers.fit_document import fit_document
from muster.answers.forecast import Budget
from muster.answers.specs.plain import Shape, plain_specs
from muster.answers.specs.read import specs_of
from muster.answers.view import View
from muster.answers.whatif import Options, Variant, compare
from muster.answers.whatif_document import whatif_document
from muster.answers.why import why
from muster.errors import InputError, MusterError

INSTRUCTIONS = (
    "Answers about one GPU cluster at the instant of its snapshot, computed by the scheduler's own code. "
    "Nothing can be changed through it. GPU amounts named *_milli are thousandths of a GPU; times named *_s are "
    "seconds in the snapshot's epoch, `now_s` being its instant."
)
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
MOST = 200


def server_of(view: Callable[[], View]) -> MCPServer[Any]:
    """An MCP server whose tools answer from the view that ``view`` gives at each call."""
    server: MCPServer[Any] = MCPServer("muster", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR")

    def answer(ask: Callable[[View], dict[str, Any]]) -> dict[str, Any]:
        try:
            return ask(view())
        except MusterError as error:
            raise ToolError(str(error)) from None

    @server.tool(name="why", annotations=READ_ONLY)
    def why_tool(job: str) -> dict[str, Any]:
        """Why a job waits and when it will start: the dominant reason in a sentence, the nodes left step by step, the
        quota, what else is in its way, the start as an interval with its confidence. JOB is a name, QUEUE/NAME or
        NAMESPACE/NAME."""
        return answer(lambda now: _short(why_document(now, why(now, job, budget=Budget()))))

    @server.tool(name="queue", annotations=READ_ONLY)
    def queue_tool(queue: str = "", limit: int = 20) -> dict[str, Any]:
        """What waits in order with reasons, what runs and until when, and the tree of queues with guaranteed, fair,
        used, borrowed and lent GPUs. QUEUE narrows it to one queue and those below it; LIMIT is at most 200."""
        return answer(lambda now: queue_document(now, queue=queue, most=max(1, min(limit, MOST))))

    @server.tool(name="fleet", annotations=READ_ONLY)
    def fleet_tool() -> dict[str, Any]:
        """What the fleet has and what is free of it, by flavor (GPU model and purchase option)."""
        return answer(fleet_document)

    @server.tool(name="fit", annotations=READ_ONLY)
    def fit_tool(
        spec: str = "", pods: int = 1, gpus: float = 0.0, queue: str = "", topology: str = "", gpu_model: str = ""
    ) -> dict[str, Any]:
        """Whether work would start if it were submitted now: where, whom it displaces, else why not, when it would, and
        the smallest changes by which it would. SPEC is the text of Kubernetes objects in YAML or of an sbatch script;
        without it PODS of GPUS each (below 1 a share of one), all in one domain of the level TOPOLOGY if given."""

        def ask(now: View) -> dict[str, Any]:
            given = Shape(pods=pods, gpus=gpus, topology=topology, gpu_model=gpu_model)
            specs = specs_of(spec, "spec", now.snapshot) if spec else plain_specs(given, now.snapshot.fleet)
            told, fitted = fit(now.snapshot, specs, now.config, Asked(queue or None))
            waits = [each for each in told.answers if each.place is None][:MOST_EXPLAINED]
            return fit_document(told, fitted, specs, [changes_that_fit(fitted, each, specs) for each in waits])

        return answer(ask)

    @server.tool(name="whatif", annotations=READ_ONLY)
    def whatif_tool(changes: list[str]) -> dict[str, Any]:
        """What would come of changes to the cluster: it is run forward as it is and with them. Who starts earlier or
        later, waits by queue and size, use. CHANGES are texts such as "add 2 racks", "quota research +64", "drain
        gpu[01-16]", "untaint dedicated", "job llama-70b priority=10", "stop JOB", "set reservations=4"."""

        def ask(now: View) -> dict[str, Any]:
            if not changes:
                raise InputError("no change is given", hint='such as "add 2 racks"')
            text = "; ".join(changes)
            options = Options()
            found = compare(now, [Variant("changed", parse_change(text, now.snapshot))], options)
            return whatif_document(now, found, options, now.snapshot.source)

        return answer(ask)

    return server


def _short(document: dict[str, Any]) -> dict[str, Any]:
    """Long lists of node names are cut: who asks here pays for each."""
    for funnel in document["funnels"]:
        for step in funnel["steps"]:
            step["lost"] = [*step["lost"][:10], *(["..."] if len(step["lost"]) > 10 else [])]
    return document
