"""`muster plan bringup`."""

from __future__ import annotations

from muster.cli.plan.from_question import Data, plan_command
from muster.planning.plans.bringup import Bringup

command = plan_command(
    Bringup,
    "How long until pods can use the GPUs of new nodes, component by component, and what it costs people: by the GPU "
    "Operator and by hand.",
    (
        "muster plan bringup --nodes 256",
        "kubectl get pods -n gpu-operator -o json > pods.json; muster plan bringup --from pods.json",
        "muster plan bringup --images 0B --link driver:time=20s --link plugin:time=15s,after=driver",
        "muster plan bringup --nodes 4 --scripted 80% --set-up 2d",
    ),
    data=(
        Data("--from", "FILE", "The operator's pods: kubectl get pods -n gpu-operator -o json.", "bringup.times_of"),
    ),
    notes="A component is name:time=3m,after=a+b,hands=15m,fails=3%,needed=no: time once those before it are\n"
    "ready, hands-on time by hand, share of nodes on which it fails.",
)
