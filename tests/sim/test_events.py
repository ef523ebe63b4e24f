import pytest

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


def test_a_feed_goes_first_at_equal_times_and_priorities() -> None:
    seen: list[int] = []
    events = Events(lambda _, payload: seen.append(payload))
    events.feed([1.0, 1.0, 2.0, 4.0], [1, 2, 3, 4], 1)
    events.schedule(1.0, 10, 0)
    events.schedule(1.0, 11, 1)
    events.schedule(3.0, 12, 0)
    events.run(1.0)
    assert seen == [10, 1, 2, 11]
    assert events.peek() == 2.0
    with pytest.raises(ValueError, match="not all handled"):
        events.feed([5.0], [5])
    events.run()
    assert seen == [10, 1, 2, 11, 3, 12, 4]
    assert not events.step()
    with pytest.raises(ValueError, match="cannot feed"):
        events.feed([3.0], [5])
    with pytest.raises(ValueError, match="cannot schedule"):
        events.schedule(float("nan"), 1)
