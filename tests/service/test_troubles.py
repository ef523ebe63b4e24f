"""What the server refuses is named in the log: once for each kind of it, not once a request."""

from __future__ import annotations

import pytest

from muster.backends.kubernetes.api import ApiError, ServerUnreachable
from muster.service.scheduler.troubles import AGAIN_S, Troubles


def _denied(name: str, status: int = 403) -> ApiError:
    return ApiError(status, "Forbidden", f'pods "{name}" is forbidden', "POST", f"/api/v1/namespaces/a/pods/{name}")


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([("not bound", _denied("a")), ("not bound", _denied("b"))], 1),
        ([("not bound", _denied("a")), ("not evicted", _denied("a"))], 2),
        ([("not bound", _denied("a")), ("not bound", _denied("a", 422))], 2),
        ([("pods not read", ServerUnreachable("is away")), ("nodes not read", ServerUnreachable("is away"))], 1),
        ([("the lease not renewed", TimeoutError())], 1),
    ],
)
def test_each_kind_of_trouble_is_named_once(said: list[tuple[str, Exception]], named: int) -> None:
    troubles = Troubles(lambda: 0.0)
    assert sum(troubles.say(what, error) for what, error in said) == named


def test_what_goes_on_is_named_again_in_a_while() -> None:
    now_s = 0.0
    troubles = Troubles(lambda: now_s)
    assert troubles.say("not bound", _denied("a"))
    now_s = AGAIN_S - 1
    assert not troubles.say("not bound", _denied("a"))
    now_s = AGAIN_S
    assert troubles.say("not bound", _denied("a"))
