from muster.sim.events import Events


def test_order_is_time_then_priority_then_sequence() -> None:
    seen: list[tuple[float, int]] = []
    events = Events(lambda time_s, payload: seen.append((time_s, payload)))
    for time_s, payload, priority in ((2.0, 1, 0), (1.0, 2, 1), (1.0, 3, 0), (1.0, 4, 0)):
        events.schedule(time_s, payload, priority)
    events.run(1.0)
    assert seen == [(1.0, 3), (1.0, 4), (1.0, 2)]
    assert events.peek() == 2.0
    assert events.step()
    assert not events.step()
