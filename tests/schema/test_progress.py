"""One count for a long call that measures several times."""

from hybridlat.schema.progress import Continued, Progress


def test_another_round_goes_on_where_the_last_ended() -> None:
    seen: list[Progress] = []
    continued = Continued(seen.append)
    for visits in (3, 2):
        continued.begin()
        for done in range(1, visits + 1):
            continued(Progress(done, visits, "Conv", 0.0))
    assert [(p.done, p.total) for p in seen] == [(1, 3), (2, 3), (3, 3), (4, 5), (5, 5)]
