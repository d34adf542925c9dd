"""Views of the experiment that MLflow's page keeps: which runs, which columns, which charts.

MLflow's page starts with columns that say nothing of a model, and charts nobody asked for. It
keeps named views as tags of the experiment and opens them by an address, so ours are put there.
Their form is that of MLflow 3.17, read from its page, and promised nowhere: where it is not
understood, the page is as MLflow has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from hybridlat.evaluation.metrics import OWN
from hybridlat.evaluation.tracking import KIND, NEWEST

_TAG = "mlflow.sharedViewState."
_MODELS = {"workflowType": "machine_learning"}  # else the page is that of language models
_BY_NAME = "tags.`mlflow.runName`"
_BY_TIME = "attributes.start_time"
_SECTION = "figures"


@dataclass(frozen=True)
class View:
    """Runs that ``which`` finds, and the columns and charts that show them.

    ``columns`` are (kind, name, width in pixels) with the kinds ``tags`` and ``metrics``;
    ``charts`` are metrics, one bar for each run; with them the page opens on charts, else on the
    table.
    """

    key: str
    name: str
    which: str
    columns: Sequence[tuple[str, str, int]]
    charts: Sequence[str] = ()
    order: str = _BY_NAME

    @property
    def tag(self) -> str:
        """The experiment's tag that holds the view."""
        return f"{_TAG}{self.key}"

    def link(self, experiment: str) -> str:
        """The address of the view, from the root of the server on."""
        asked = {**_MODELS, "viewStateShareKey": self.key}
        if self.charts:
            asked["compareRunsMode"] = "CHART"
        return f"#/experiments/{quote(experiment)}/runs?{urlencode(asked)}"

    def to_text(self, made_at_ms: int) -> str:
        """The value of the tag."""
        state = json.dumps(self._state(), separators=(",", ":"))
        dates = {"createdAt": made_at_ms, "updatedAt": made_at_ms}
        return json.dumps({"name": self.name, **dates, "state": state})

    def _state(self) -> Mapping[str, object]:
        columns = {f"{kind}.`{name}`": width for kind, name, width in self.columns}
        state: dict[str, object] = {
            "searchFilter": self.which,
            "orderByKey": self.order,
            "orderByAsc": self.order == _BY_NAME,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "selectedColumns": list(columns),
            "columnOrder": list(columns),
            "columnWidths": columns,
            "runsHiddenMode": "SHOW_ALL",
        }
        if self.charts:
            state["compareRunCharts"] = [_bars(metric) for metric in self.charts]
            section = {"uuid": _SECTION, "name": self.name, "display": True, "isReordered": True}
            state["compareRunSections"] = [section]
            state["isAccordionReordered"] = True
        return state


def _bars(metric: str) -> Mapping[str, object]:
    return {
        "type": "BAR", "uuid": f"bars-{metric}", "metricSectionId": _SECTION, "metricKey": metric,
        "displayName": metric, "runsCountToCompare": 100, "deleted": False, "isGenerated": False,
    }  # fmt: skip


_JUDGED = f"tags.{KIND} = 'evaluation' and tags.{NEWEST} = 'yes'"
_FIGURES = (
    ("metrics", "rmspe", 90), ("metrics", "noise_floor", 105), ("metrics", "coverage", 95),
    ("metrics", "width", 85), ("metrics", "within_10", 95), ("metrics", "networks", 95),
)  # fmt: skip
FIGURES = View(
    "hybridlat-figures-1",
    "Figures of every target, regime and method",
    _JUDGED,
    (("tags", "target", 280), ("tags", "regime", 120), ("tags", "method", 140), *_FIGURES),
)
GPUS = View(
    "hybridlat-targets-1",
    "Targets compared, networks that were never seen",
    f"{_JUDGED} and tags.method = '{OWN}' and tags.regime = 'unseen'",
    (("tags", "target", 280), *_FIGURES),
    charts=("rmspe", "noise_floor", "coverage", "width", "within_10", "networks"),
)
CHAMPIONS = View(
    "hybridlat-champions-1",
    "Champions and the models that wanted their place",
    f"tags.{KIND} = 'training'",
    (
        ("tags", "target", 280), ("tags", "accepted", 90), ("metrics", "held_out_rmspe", 130),
        ("metrics", "champion_rmspe", 130), ("metrics", "unseen/coverage", 130),
        ("tags", "reason", 420),
    ),
    charts=("held_out_rmspe", "champion_rmspe", "unseen/coverage", "unseen/width"),
    order=_BY_TIME,
)  # fmt: skip
VIEWS = (FIGURES, GPUS, CHAMPIONS)
