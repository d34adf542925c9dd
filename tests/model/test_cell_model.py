"""The learned model: accuracy on a made-up accelerator, intervals, trust, files, lightness."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.public_data.convolutions import Convolution, conv_cell
from hybridlat.errors import InputError, StoreError
from hybridlat.graph.network import Network, Node, TensorType
from hybridlat.graph.signature import read, sign
from hybridlat.model.applicability_domain import fit_domain
from hybridlat.model.cell_model import UNKNOWN_FACTOR, CellModel
from hybridlat.model.fit import FitConfig, fit_model, make_folds
from hybridlat.model.geometry import geometry
from hybridlat.model.model_files import load_model, read_device, save_model
from hybridlat.schema.structure import CellPrediction
from tests.model.rows import DEVICE, latencies_us, texts

CONFIG = FitConfig(DEVICE)
TRAIN, TEST = texts(360)[:240], texts(360)[240:]


def errors(model: CellModel, slower: float = 1.0) -> np.ndarray:
    """Of test cells, relative to the truth of an accelerator so much slower."""
    truth = slower * latencies_us(TEST, noise=0.0)
    return np.asarray(model.predict_geometry(geometry(TEST)).latency_us / truth - 1)


@pytest.fixture(scope="module")
def model() -> CellModel:
    return fit_model(TRAIN, latencies_us(TRAIN), TRAIN, CONFIG)


def test_unseen_cells_are_predicted_with_intervals_that_hold(model: CellModel) -> None:
    truth = latencies_us(TEST, 1)
    made = model.predict_geometry(geometry(TEST))
    error = made.latency_us / truth - 1
    assert np.sqrt(np.mean(error**2)) < 0.15
    covered = np.mean((made.low_us <= truth) & (truth <= made.high_us))
    assert 0.8 <= covered <= 0.99
    assert (made.low_us < made.latency_us).all()
    assert np.mean(made.novelty <= 1) > 0.85


def test_saved_and_loaded_it_says_the_same(model: CellModel, tmp_path: Path) -> None:
    save_model(model, tmp_path, {"date": "2026-01-01"})
    again = load_model(tmp_path)
    assert again.predict(TEST) == model.predict(TEST)
    assert again.card["date"] == "2026-01-01"
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"model.json", "arrays.npz", "trees.ubj", "spread.ubj", "card.json"}
    assert b"PK" in (tmp_path / "arrays.npz").read_bytes()[:2]


def test_what_was_asked_before_does_not_change_an_answer(model: CellModel, tmp_path: Path) -> None:
    save_model(model, tmp_path)
    together, alone, backwards = (load_model(tmp_path) for _ in range(3))
    expected = together.predict(TEST)
    assert [alone.predict([text])[0] for text in TEST] == expected
    assert backwards.predict(TEST[::-1])[::-1] == expected
    arrays = model.predict_geometry(geometry(TEST)).latency_us
    assert np.allclose([cell.latency_us or 0.0 for cell in expected], arrays, rtol=1e-5)


def conv(c_in: int = 64, groups: int = 1, activation: str = "Relu", side: int = 14) -> str:
    shape = Convolution(1, c_in, (side, side), 64, (3, 3), 1, (1,) * 4, groups, bias=True)
    cell = conv_cell(shape, activation)
    assert cell is not None
    return cell.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (conv(c_in=4096), "outside the training range: c_in=4096"),
        (conv(activation="Tanh"), ""),
        (conv(groups=8), ""),
    ],
    ids=["channels", "a costly activation", "groups"],
)
def test_what_was_never_trained_is_not_trusted(model: CellModel, text: str, reason: str) -> None:
    (made,) = model.predict([text])
    assert not made.trusted and reason in made.reason and made.latency_us is not None


def test_an_operator_never_seen_has_no_latency_or_a_wide_interval(model: CellModel) -> None:
    image = TensorType("float32", (1, 8, 4, 4))
    node = Node("n", "Softmax", ("x",), ("y",))
    cell = sign(Network("cell", (node,), ("x",), ("y",), {"x": image, "y": image}))
    (made,) = model.predict([cell.text])
    assert made == CellPrediction(None, None, False, "operator never seen in training: Softmax")
    # Its formula is known, not its speed: that of whole numbers is another than that of floats.
    name = re.search(r"node ([^@]*)@", TEST[0])
    assert name is not None
    known, new = model.predict([TEST[0], TEST[0].replace(f"node {name[1]}@", "node ConvInteger@")])
    assert known.interval_us is not None and new.interval_us is not None
    assert new.latency_us is not None and not new.trusted
    assert "never seen in training: ConvInteger" in new.reason
    assert new.interval_us[1] / new.interval_us[0] > UNKNOWN_FACTOR**2
    assert known.interval_us[1] / known.interval_us[0] < UNKNOWN_FACTOR**2


def test_sizes_that_training_never_met_together_are_strange() -> None:
    """Each size is well inside its range: only the combination is new."""
    view = geometry(many := texts(2500, seed=3, top=512))
    region = (view.column("c_in") > 192) & (view.column("h_in") < 20)
    region |= (view.column("k_h") == 5) & (view.column("c_out") > 256)
    known = np.flatnonzero(~region)
    domain = fit_domain(view.take(known[:1200]), np.zeros(1200, int), 1, 0)
    inside = domain.novelty(view.take(known[1200:]), np.zeros(len(known) - 1200, int))
    new = np.flatnonzero(region)
    outside = domain.novelty(view.take(new), np.zeros(len(new), int))
    assert len(many) == len(view.cell)
    auroc = np.mean(outside[:, None] > inside) + 0.5 * np.mean(outside[:, None] == inside)
    assert auroc > 0.9
    assert np.mean(inside > 1) < 0.08
    beyond = geometry([text.replace("x14x14", "x140x140") for text in many[:300]])
    assert (domain.novelty(beyond, np.zeros(300, int))[beyond.column("h_in") == 140] > 1).all()


def chain(first: str, second: str) -> str:
    """Two kernels in a row as one cell; shapes need not fit for a prediction."""
    a, b = read(first), read(second)
    rename = {n: f"u{n}" for n in (*b.types, *b.constants)} | {b.inputs[0]: a.outputs[0]}
    node = b.nodes[0]
    moved = Node(
        "b", node.op, tuple(rename[i] for i in node.inputs), tuple(rename[o] for o in node.outputs),
        node.attributes, node.domain, node.version,
    )  # fmt: skip
    types = {**{rename[n]: t for n, t in b.types.items()}, **a.types}
    constants = {**a.constants, **{rename[n]: c for n, c in b.constants.items()}}
    outputs = (rename[b.outputs[0]],)
    return sign(Network("two", (a.nodes[0], moved), a.inputs, outputs, types, constants)).text


def test_a_cell_of_two_kernels_is_their_sum(model: CellModel) -> None:
    single = conv(side=28)
    one, two = model.predict([single, chain(single, single)])
    assert one.latency_us and one.interval_us and two.interval_us
    middle = [np.sqrt(low * high) for low, high in (one.interval_us, two.interval_us)]
    assert middle[1] == pytest.approx(2 * middle[0], rel=1e-4)
    assert two.latency_us == pytest.approx(2 * one.latency_us, rel=0.05)  # one leans more
    wide = one.interval_us[1] / one.interval_us[0]
    assert two.interval_us[1] / two.interval_us[0] < wide  # errors of kernels partly cancel


def test_a_kernel_without_training_widens_its_cell_by_what_it_may_take(model: CellModel) -> None:
    """Not by a factor of the whole cell, whatever is known of the rest."""
    large, small = conv(c_in=250, side=56), re.sub("node .*@", "node ConvInteger@", conv(c_in=9))
    known, new, both = model.predict([large, small, chain(large, small)])
    assert known.interval_us and new.interval_us and both.interval_us
    assert new.latency_us and both.latency_us and not both.trusted
    assert both.interval_us[1] < 1.1 * (known.interval_us[1] + new.interval_us[1])
    assert both.interval_us[1] - both.latency_us > new.interval_us[1] - new.latency_us


def test_cells_of_several_kernels_teach_their_kernels() -> None:
    """Not one of them is measured alone."""
    pairs = [chain(*pair) for pair in zip(TRAIN[:100:2], TRAIN[1:100:2], strict=True)]
    single = latencies_us(TRAIN[:100])
    model = fit_model(pairs, single[::2] + single[1::2], pairs, CONFIG)
    assert np.median(np.abs(errors(model))) < 0.3


def test_the_same_records_make_the_same_model_whatever_else_cannot_be_read() -> None:
    few = TRAIN[:60]
    foreign = TRAIN[0].replace("float32", "float4")
    once = fit_model(few, latencies_us(few), few, CONFIG)
    again = fit_model([*few, foreign], [*latencies_us(few), 5.0], [*few, "x"], CONFIG)
    assert again.predict(TEST[:20]) == once.predict(TEST[:20])
    assert again.trees.ubj == once.trees.ubj


def test_a_prior_helps_a_target_with_few_records(model: CellModel, tmp_path: Path) -> None:
    few = TRAIN[:30]
    slow = 2.5 * latencies_us(few, noise=0.01)
    alone = fit_model(few, slow, few, CONFIG)
    helped = fit_model(few, slow, few, FitConfig(DEVICE, priors=(model,)))
    alone_rmse, helped_rmse = (np.sqrt(np.mean(errors(m, 2.5) ** 2)) for m in (alone, helped))
    assert helped.prior is model
    assert helped_rmse < 0.7 * alone_rmse
    save_model(helped, tmp_path)
    assert load_model(tmp_path).predict(TEST) == helped.predict(TEST)


def test_of_many_rows_trees_alone_learn(model: CellModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridlat.model.fit._MANY_ROWS", 60)
    rows = TRAIN[:60], latencies_us(TRAIN[:60]), [f"net{i % 9}" for i in range(60)], CONFIG
    of_many = fit_model(*rows)
    assert model.gp_weight > of_many.gp_weight == len(of_many.gp_mean.columns) == 0


def test_folds_never_share_a_group() -> None:
    groups = [f"net{i % 11}" for i in range(200)]
    assert len(set(zip(groups, make_folds(groups, 3).tolist(), strict=True))) == 11


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="3 usable rows"):
        fit_model(TRAIN[:4], [1.0, 2.0, 3.0, float("nan")], TRAIN[:4], CONFIG)


@pytest.mark.parametrize("damage", ["cut", "1", "99", "missing", "features"])
def test_a_damaged_model_is_named(model: CellModel, damage: str, tmp_path: Path) -> None:
    save_model(model, tmp_path)
    file, changed = tmp_path / "model.json", dict[str, object]()
    if damage == "cut":
        (tmp_path / "trees.ubj").write_bytes(model.trees.ubj[: len(model.trees.ubj) // 2])
    elif damage == "missing":
        (tmp_path / "arrays.npz").unlink()
    elif damage == "features":
        changed["features"] = ["luck"]
    else:
        changed["format"] = int(damage)
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    with pytest.raises(StoreError):
        load_model(tmp_path)
    # Training anew needs the device, whatever has become of the rest.
    assert read_device(tmp_path) == model.device
    assert read_device(tmp_path / "nowhere") is None


@given(st.data())
@settings(max_examples=60)
def test_a_strange_cell_never_raises(data: st.DataObject) -> None:
    model = load_model(Path(__file__).parents[1] / "golden" / "model_format_2")
    text = data.draw(st.sampled_from(TEST[:5]))
    words = ["0", "-", "x", ":", "\n", "context lukewarm\n", "int4", "99999", "node ", ""]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 9)))
        text = text[:start] + data.draw(st.sampled_from(words)) + text[stop:]
    strange, known = model.predict([text, TEST[0]])
    assert known.latency_us == pytest.approx(model.predict([TEST[0]])[0].latency_us, rel=1e-4)
    assert strange.trusted or strange.reason
    assert strange.latency_us is None or strange.latency_us > 0


def test_a_cell_that_holds_nothing_or_cannot_be_read_is_answered(model: CellModel) -> None:
    for text in TEST[:5]:
        shapes = set(re.findall(r"\d+(?:x\d+)+", text))
        for empty in (text.replace(shape, "0x4x4") for shape in sorted(shapes)):
            assert model.predict([empty, TEST[0]])[1].latency_us is not None
    foreign = TEST[0].replace("float32", "float4")
    made = model.predict([foreign, TEST[1], foreign])
    assert made[1] == model.predict([TEST[1]])[0]
    assert made[0] == made[2] == CellPrediction(None, None, False, made[0].reason)
    assert "cannot be read" in made[0].reason


def test_noisy_rows_pull_less() -> None:
    cells, unseen = texts(150), texts(60, seed=9)
    random = np.random.default_rng(3)
    noise = np.where(random.random(len(cells)) < 0.35, 1.0, 0.01)
    measured = latencies_us(cells) * np.where(noise > 0.5, 2.5, 1.0)
    truth = latencies_us(unseen, noise=0.0)

    def error(noise_shares: np.ndarray | None) -> float:
        model = fit_model(cells, measured, cells, CONFIG, noise_shares)
        predicted_us = model.predict_geometry(geometry(unseen)).latency_us
        return float(np.median(np.abs(np.log(predicted_us / truth))))

    assert error(noise) < 0.85 * error(None)
