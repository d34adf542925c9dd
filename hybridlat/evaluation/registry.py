"""MLflow's registry: a target's models are versions of one registered model, each a pyfunc.

``champion`` is the alias of the version in use, ``challenger`` of the last that was refused. A
version holds the model's folder as it is, no pickle, and names the module that loads it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hybridlat.errors import InputError
from hybridlat.evaluation.tracking import TrackedRun, Tracker, calling
from hybridlat.schema.target import Target
from hybridlat.store.place import without_password

CHAMPION, CHALLENGER = "champion", "challenger"
MODEL_HASH = "model_hash"
_LOADER = "hybridlat"  # has the function that MLflow calls
_INPUTS = {"path": "string", "batch": "long", "cell": "string"}
_OUTPUTS = ("latency_us", "low_us", "high_us")


def model_name(target: Target) -> str:
    """The registered model of a target: a name without the characters MLflow keeps for itself."""
    return f"hybridlat-{re.sub(r'[/:]', '_', target.folder)}"


def register(
    tracker: Tracker, target: Target, run: TrackedRun, folder: Path, device: str,
    reason: str = "", tags: Mapping[str, object] = {},
) -> str:  # fmt: skip
    """Keep the model files of ``folder`` as a new version of the target's model; its number."""
    client = tracker.client
    if client is None or run.client is None:
        return ""
    name = model_name(target)
    with calling(f"register {name}"), tempfile.TemporaryDirectory() as scratch:
        import pandas
        from mlflow import models as saved
        from mlflow import pyfunc
        from mlflow.types import ColSpec, Schema

        inputs = [ColSpec(kind, column, required=False) for column, kind in _INPUTS.items()]
        outputs = [ColSpec("double", column) for column in _OUTPUTS]
        pyfunc.save_model(
            f"{scratch}/model", loader_module=_LOADER, data_path=str(folder),
            signature=saved.ModelSignature(Schema(inputs), Schema(outputs)),
            input_example=pandas.DataFrame({"path": ["resnet18"], "batch": [1]}),
            pip_requirements=[],  # an index may have another package of hybridlat's name
        )  # fmt: skip
        client.log_artifacts(run.id, f"{scratch}/model", "model")
        if not client.search_registered_models(f"name = '{name}'"):
            title = f"Latency of networks on {target} ({device})."
            client.create_registered_model(name, description=title)
        root = client.get_run(run.id).info.artifact_uri
        known = ((key, value) for key, value in tags.items() if value is not None)
        words = {key: f"{v:.3f}" if isinstance(v, float) else str(v) for key, v in known}
        source = f"{root}/model", run.id, words
        return str(client.create_model_version(name, *source, description=reason).version)


def promote(tracker: Tracker, target: Target, version: str, alias: str = CHAMPION) -> None:
    """Give the alias to a version of the target's model."""
    with calling(f"move the alias {alias}"):
        tracker.client.set_registered_model_alias(model_name(target), alias, version)


def champions(tracker: Tracker) -> dict[str, str]:
    """The version of each registered model's champion, by the model's name."""
    if tracker.client is None:
        return {}
    with calling("look for champions"):
        held = tracker.client.search_registered_models("name LIKE 'hybridlat-%'", max_results=1000)
        return {one.name: str(one.aliases[CHAMPION]) for one in held if CHAMPION in one.aliases}


def fetch_champion(tracker: Tracker, target: Target, scratch: Path) -> tuple[Path, str, str]:
    """The target's champion: its model files below ``scratch``, its version, and its hash.

    InputError where the registry has none.
    """
    name, held = model_name(target), champions(tracker)
    if name not in held:
        raise InputError(
            f"MLflow at {without_password(tracker.uri)} has no champion of {name}, but of "
            f"{', '.join(sorted(held)) or 'no target'}: `hybridlat train --target {target}` "
            "makes one"
        )
    with calling(f"fetch {name}"):
        from mlflow.artifacts import download_artifacts

        tags = tracker.client.get_model_version(name, held[name]).tags
        uri = tracker.client.get_model_version_download_uri(name, held[name])
        fetched = Path(download_artifacts(uri, dst_path=str(scratch), tracking_uri=tracker.uri))
    return next(fetched.glob("data/*"), fetched), held[name], tags.get(MODEL_HASH, "")
