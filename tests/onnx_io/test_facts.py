"""What is remembered of a file: the same as it says itself, and found anew after a change."""

import hashlib
from pathlib import Path

import pytest

from hybridlat.onnx_io import OnnxFile, load
from hybridlat.onnx_io.facts import FACTS_FORMAT, FileFacts
from tests.networks import NETS

FILES = sorted(NETS.glob("*.onnx"))


def facts_of(file: OnnxFile) -> FileFacts:
    return FileFacts.of(file.facts)


def known(path: Path) -> OnnxFile:
    """The file as it is opened when it was met before."""
    text = facts_of(load(path)).to_text()
    return load(path, recall=lambda _: FileFacts.from_text(text))


@pytest.mark.parametrize("path", FILES[::6], ids=lambda path: path.stem)
def test_a_known_file_says_the_same_unparsed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, again = load(path), known(path)
    name = next(iter(file.parsed.input_sizes))
    with monkeypatch.context() as patched:
        patched.setattr(OnnxFile, "parsed", property(lambda _: pytest.fail("it was parsed")))
        facts = facts_of(again)
        keys = [again.key(), again.key(2), again.key(None, {name: (1, 3, 64, 64)})]
    assert facts == facts_of(file) and again.label == file.label
    assert again.parsed.model.SerializeToString() == file.parsed.model.SerializeToString()
    assert keys == [file.key(), file.key(2), file.key(None, {name: (1, 3, 64, 64)})]


def test_files_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    asked: list[str] = []

    def recall(digest: str) -> FileFacts | None:
        asked.append(digest)
        return None

    copy = tmp_path / "copy.onnx"
    copy.write_bytes((NETS / "squeezenet.onnx").read_bytes())
    for path in (NETS / "squeezenet.onnx", copy, NETS / "resnet18.onnx"):
        assert load(path, recall=recall).digest == asked[-1]
    assert asked[0] == asked[1] != asked[2]
    assert load(copy).digest == ""  # nobody asked
    assert load(copy.read_bytes(), recall=recall).digest == "" and len(asked) == 3


def test_how_facts_are_found_has_a_number() -> None:
    """Fails when facts of the same files change; the keys of caches hold the code's hash."""
    texts = [facts_of(load(path)).to_text() for path in FILES]
    found = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    assert (FACTS_FORMAT, found) == (4, "f260a9f8292f5b67")
    assert texts[0].startswith(f"[{FACTS_FORMAT},")
    assert FileFacts.from_text(texts[0].replace(f"[{FACTS_FORMAT},", "[99,", 1)) is None
