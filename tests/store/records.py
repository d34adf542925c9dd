"""Records for tests of stores and packs: small, fixed, and with their signature texts."""

from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Breakdown, Kind, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.networks import branches, classifier, conv_relu, normal_form, residual_block

TARGET = Target("fake", "fake-1.0", "fp32", 1)
OTHER = Target.parse("h100/tensorrt-8.6/fp16")
NETWORKS = map(normal_form, (conv_relu(), residual_block(), branches(), classifier()))
TEXTS = {s.hash: s.text for s in map(sign, NETWORKS)}
HASHES = tuple(TEXTS)


def measured(
    signature: str = HASHES[0],
    latency_us: float | None = 10.0,
    *,
    target: Target = TARGET,
    kind: Kind = "cell",
    spread_share: float = 0.01,
    failure: str | None = None,
    measured_at: str = "2026-01-02T03:04:05Z",
) -> Measurement:
    samples = () if latency_us is None else (latency_us * 0.99, latency_us, latency_us * 1.02)
    return Measurement(
        target, signature, kind, latency_us, spread_share,
        visits=(Visit(samples, 1.0, 1),) if samples else (), protocol="test 1",
        environment={"engine": "fake"}, measured_at=measured_at, failure=failure,
        labels={"network": "tiny"},
    )  # fmt: skip


def filled(store: Store) -> Store:
    """A store with two targets, all kinds, a failure, repeats and a breakdown."""
    store.add_signatures(TEXTS)
    store.add(
        [
            measured(HASHES[0], 10.0),
            measured(HASHES[0], 11.0, measured_at="2026-02-02T00:00:00Z"),
            measured(HASHES[1], 20.0),
            measured(HASHES[2], None, failure="out of memory"),
            measured(HASHES[3], 40.0, kind="network"),
            measured(HASHES[0], 12.0, kind="layer"),
            measured(HASHES[0], 5.0, target=OTHER),
        ]
    )
    store.add_breakdowns(
        [Breakdown(TARGET, "tiny", HASHES[3], ((HASHES[0], 2), (HASHES[1], 1)), ((HASHES[0], 3),))]
    )
    return store
