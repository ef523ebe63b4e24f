"""What is free on each node over time: a chain of points a node, from each of which on so much is free.

The first point of a node holds from the past on; time goes forward only, so points that were passed are dropped.
"""

from __future__ import annotations

# Numpy's stubs do not tell an element from an array where the number of axes is not known.
# pyright: reportArgumentType=false
from typing import NamedTuple

import numpy as np

from muster.engine.kernels.nodes import apply
from muster.kernels import (
    ALL_GPUS,
    CONSTRAINT,
    CPU,
    FREE_CPU,
    FREE_MEMORY,
    FREE_PODS,
    GPU_MILLI,
    GPUS,
    MEMORY,
    ON_NODE,
    Floats,
    Ints,
    NodeArrays,
    ShapeArrays,
    entry_kernel,
    kernel,
)


class Points(NamedTuple):
    """The points of N nodes.

    ``first`` (N) is each node's first point; ``after`` is the next point of the same node (-1: none) or, of an unused
    one, the next unused; ``free[0]`` is the first unused one (-1: none is left). ``time`` is from when on ``amount``
    (points x (3 + G): CPU, memory, pods, each device) is free.
    """

    first: Ints
    after: Ints
    free: Ints
    time: Floats
    amount: Ints


@entry_kernel
def begin(now_s: float, points: Points, nodes: NodeArrays) -> None:
    """One point a node: what is free now stays so."""
    count = points.first.shape[0]
    for point in range(points.after.shape[0]):
        points.after[point] = point + 1
    points.after[points.after.shape[0] - 1] = -1
    points.free[0] = count if points.after.shape[0] > count else -1
    for node in range(count):
        points.first[node] = node
        points.after[node] = -1
        points.time[node] = now_s
        for part in range(ON_NODE):
            points.amount[node, part] = nodes.table[node, part]
        for device in range(nodes.gpu_free.shape[1]):
            points.amount[node, ON_NODE + device] = nodes.gpu_free[node, device]


@entry_kernel
def agrees(now_s: float, points: Points, nodes: NodeArrays) -> bool:
    """Whether what should be free now is what is free; points that were passed are dropped."""
    for node in range(points.first.shape[0]):
        pass_by(node, now_s, points)
        point = points.first[node]
        for part in range(ON_NODE):
            if points.amount[point, part] != nodes.table[node, part]:
                return False
        for device in range(nodes.gpu_free.shape[1]):
            if points.amount[point, ON_NODE + device] != nodes.gpu_free[node, device]:
                return False
    return True


@kernel
def pass_by(node: int, now_s: float, points: Points) -> None:
    """Drop the points of the past, all but the last."""
    point = points.first[node]
    after = points.after[point]
    while after >= 0 and points.time[after] <= now_s:
        drop(point, points)
        point = after
        after = points.after[point]
    points.first[node] = point


@kernel
def drop(point: int, points: Points) -> None:
    """A point is no longer used."""
    points.after[point] = points.free[0]
    points.free[0] = point


@kernel
def split(point: int, time_s: float, points: Points) -> int:
    """A new point after ``point``, with the same amounts; there must be an unused one."""
    new = points.free[0]
    points.free[0] = points.after[new]
    points.after[new] = points.after[point]
    points.after[point] = new
    points.time[new] = time_s
    for part in range(points.amount.shape[1]):
        points.amount[new, part] = points.amount[point, part]
    return new


@kernel
def joined(point: int, points: Points) -> bool:
    """Drop the point after ``point`` if it says the same."""
    after = points.after[point]
    if after < 0:
        return False
    for part in range(points.amount.shape[1]):
        if points.amount[point, part] != points.amount[after, part]:
            return False
    points.after[point] = points.after[after]
    drop(after, points)
    return True


@entry_kernel
def book(
    pods: Ints, sign: int, from_s: float, to_s: float, now_s: float, least_milli: int, points: Points,
    shapes: ShapeArrays,
) -> None:  # fmt: skip
    """Take (``sign`` 1) or give back (-1) what pods use from ``from_s`` to ``to_s``; of a device at least so much.

    Rows of ``pods`` are node, shape and device mask. Two unused points a pod are needed.
    """
    if to_s <= from_s or to_s <= now_s:
        return
    for pod in range(pods.shape[1]):
        node, shape, devices = pods[0, pod], pods[1, pod], pods[2, pod]
        pass_by(node, now_s, points)
        before = -1
        point = points.first[node]
        if from_s > now_s:
            while points.after[point] >= 0 and points.time[points.after[point]] <= from_s:
                before = point
                point = points.after[point]
            if points.time[point] < from_s:
                before = point
                point = split(point, from_s, points)
        while point >= 0 and points.time[point] < to_s:
            after = points.after[point]
            if (after < 0 or points.time[after] > to_s) and to_s < np.inf:
                split(point, to_s, points)
            points.amount[point, FREE_CPU] -= sign * shapes.table[shape, CPU]
            points.amount[point, FREE_MEMORY] -= sign * shapes.table[shape, MEMORY]
            points.amount[point, FREE_PODS] -= sign
            for device in range(points.amount.shape[1] - ON_NODE):
                if (devices >> device) & 1:
                    points.amount[point, ON_NODE + device] -= sign * max(shapes.table[shape, GPU_MILLI], least_milli)
            if before < 0 or not joined(before, points):
                before = point
            point = points.after[before]
        if before >= 0:
            joined(before, points)


@kernel
def room_of(low: Ints, shape: int, most: int, shapes: ShapeArrays) -> int:
    """How many pods of the shape so much has room for, at most ``most``; see `count_room`."""
    room = min(most, low[FREE_PODS])
    if shapes.table[shape, CPU] > 0:
        room = min(room, low[FREE_CPU] // shapes.table[shape, CPU])
    if shapes.table[shape, MEMORY] > 0:
        room = min(room, low[FREE_MEMORY] // shapes.table[shape, MEMORY])
    gpus = shapes.table[shape, GPUS]
    if gpus > 0 and room > 0:
        milli = shapes.table[shape, GPU_MILLI]
        slots = 0
        for device in range(ON_NODE, low.shape[0]):
            if low[device] >= milli:
                slots += low[device] // milli
        room = min(room, slots // gpus)
    return max(room, 0)


@kernel
def first_from(times: Floats, time_s: float, later_s: float) -> int:
    """The index of the first of the sorted times that, ``later_s`` later, is ``time_s`` or more."""
    low, high = 0, times.shape[0]
    while low < high:
        middle = (low + high) // 2
        if times[middle] + later_s < time_s:
            low = middle + 1
        else:
            high = middle
    return low


@entry_kernel
def add_use(pods: Ints, sign: int, rows: Ints, amounts: Ints, shapes: ShapeArrays) -> int:
    """Add what pods take to ``amounts``, which has a row a node of the sorted ``rows``; how many stand there."""
    found = 0
    for pod in range(pods.shape[1]):
        node, shape, devices = pods[0, pod], pods[1, pod], pods[2, pod]
        low, high = 0, rows.shape[0]
        while low < high:
            middle = (low + high) // 2
            if rows[middle] < node:
                low = middle + 1
            else:
                high = middle
        if low == rows.shape[0] or rows[low] != node:
            continue
        found += 1
        amounts[low, FREE_CPU] += sign * shapes.table[shape, CPU]
        amounts[low, FREE_MEMORY] += sign * shapes.table[shape, MEMORY]
        amounts[low, FREE_PODS] += sign
        for device in range(amounts.shape[1] - ON_NODE):
            if (devices >> device) & 1:
                amounts[low, ON_NODE + device] += sign * shapes.table[shape, GPU_MILLI]
    return found


@entry_kernel
def rooms_at(
    shape: int, most: int, lasts_s: float, times: Floats, points: Points, nodes: NodeArrays, shapes: ShapeArrays,
    low: Ints, rooms: Ints,
) -> None:  # fmt: skip
    """How many pods of the shape could start at each of the sorted ``times`` and stay for ``lasts_s`` where they are.

    Ideally each node is looked at, at each time, over the whole stay. Room lasts until the next point comes in sight
    or the first one is left; with no room at a point, no stay that meets it is possible. ``low`` (3 + G) is scratch;
    ``rooms`` has one more entry than ``times``. Counted as in `count_room`; where devices are shared, an upper bound.
    """
    rooms[:] = 0
    constraint = shapes.table[shape, CONSTRAINT]
    end = times.shape[0]
    for node in range(points.first.shape[0]):
        if shapes.static_refusals[constraint, node] != 0 or shapes.table[shape, GPUS] > nodes.table[node, ALL_GPUS]:
            continue
        point = points.first[node]
        at = 0
        while at < end:
            start_s = times[at]
            while points.after[point] >= 0 and points.time[points.after[point]] <= start_s:
                point = points.after[point]
            for part in range(low.shape[0]):
                low[part] = points.amount[point, part]
            room = room_of(low, shape, most, shapes)
            last = point
            after = points.after[last]
            while room > 0 and after >= 0 and points.time[after] < start_s + lasts_s:
                last = after
                after = points.after[last]
                lower = False
                for part in range(low.shape[0]):
                    if points.amount[last, part] < low[part]:
                        low[part] = points.amount[last, part]
                        lower = True
                if lower:
                    room = room_of(low, shape, most, shapes)
            left = points.after[point]
            if room == 0 and room_of(points.amount[last], shape, most, shapes) == 0:
                left = after
            until = first_from(times, points.time[left], 0.0) if left >= 0 else end
            if room > 0 and after >= 0:
                until = min(until, max(at + 1, first_from(times, np.nextafter(points.time[after], np.inf), lasts_s)))
            rooms[at] += room
            rooms[until] -= room
            at = until
    for at in range(1, end):
        rooms[at] += rooms[at - 1]


@entry_kernel
def kept_free(rows: Ints, start_s: float, end_s: float, points: Points, nodes: NodeArrays, held: Ints) -> None:
    """What of the nodes ``rows`` must stay free of others between two times: what is free less the least that will be.

    ``nodes`` are as they are at the start. ``held`` has a row a node: CPU, memory and pods, then each device.
    """
    for index in range(rows.shape[0]):
        node = rows[index]
        point = points.first[node]
        while points.after[point] >= 0 and points.time[points.after[point]] <= start_s:
            point = points.after[point]
        for part in range(held.shape[1]):
            held[index, part] = points.amount[point, part]
        point = points.after[point]
        while point >= 0 and points.time[point] < end_s:
            for part in range(held.shape[1]):
                held[index, part] = min(held[index, part], points.amount[point, part])
            point = points.after[point]
        for part in range(ON_NODE):
            held[index, part] = max(0, nodes.table[node, part] - held[index, part])
        for device in range(nodes.gpu_free.shape[1]):
            held[index, ON_NODE + device] = max(0, nodes.gpu_free[node, device] - held[index, ON_NODE + device])


@entry_kernel
def keep_for_all(first: Ints, spans: Floats, needs: Ints, coming: Ints, most: Ints) -> None:
    """The most that is needed of each node at the start of any of its slots.

    Rows of ``needs`` and ``coming`` from ``first[n]`` to ``first[n + 1]`` are of the slots on the n-th node; rows of
    ``spans`` are their starts and ends.
    """
    for node in range(most.shape[0]):
        for slot in range(first[node], first[node + 1]):
            start_s = spans[0, slot]
            for part in range(most.shape[1]):
                need = -coming[slot, part]
                for other in range(first[node], first[node + 1]):
                    if spans[0, other] <= start_s < spans[1, other]:
                        need += needs[other, part]
                most[node, part] = max(most[node, part], need)


@entry_kernel
def count_unused(points: Points) -> int:
    """How many points are not used."""
    count = 0
    point = points.free[0]
    while point >= 0:
        count += 1
        point = points.after[point]
    return count


@entry_kernel
def take_pods(pods: Ints, nodes: NodeArrays, shapes: ShapeArrays) -> None:
    """Give pods the very places that ``pods`` tells: rows node, shape and device mask."""
    for pod in range(pods.shape[1]):
        apply(pods[0, pod], pods[1, pod], pods[2, pod], 1, nodes, shapes)
