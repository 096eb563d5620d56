"""The saved view of a live-eval run in W&B: panels by policy version, never by W&B's own step.

Describes the view with wandb-workspaces, which is imported here alone; `spec` needs no network, `save`
does. Knows keys (wandb_rows), not results. Invariant: every line of every panel is drawn against the
step metric of its family.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError, LiveEvalError
from live_eval.results.keys import DatasetKeys
from live_eval.results.wandb_extras import RESULTS_KEY
from live_eval.results.wandb_rows import STEP_METRICS

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

POLICY, CHECKPOINT = "live_eval", "checkpoint_eval"
INTERVAL = ("score_low", "score_high")
"""The metrics that are the ends of the score's 95 % interval."""
COUNTERS = ("discarded_total", "superseded_total", "cancelled_total", "failed_total", "dropped_total")
NAME = "live-eval: by policy version"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """One panel: lines over a family's steps."""

    title: str
    keys: tuple[str, ...]
    family: str = POLICY
    dotted: tuple[str, ...] = ()
    """Those of the keys that are the ends of an interval."""
    axis: str = ""

    @property
    def x(self) -> str:
        """What it is drawn against."""
        return STEP_METRICS[self.family]


def plots(datasets: Sequence[str]) -> dict[str, list[Plot]]:
    """The panels by section, in order; `datasets` by their own names."""
    keys = DatasetKeys(datasets)
    named = {name: keys.key(name) for name in datasets}
    coverage = tuple(f"{POLICY}/{key}/coverage" for key in named.values())
    seconds = tuple(f"{POLICY}/{key}/duration_s" for key in named.values())
    counters = tuple(f"{POLICY}/{name}" for name in COUNTERS)
    return {
        "Scores by policy version": [_score(name, key) for name, key in named.items()],
        "How far behind": [
            Plot(title="Lag, versions", keys=(f"{POLICY}/lag_versions",), axis="newer versions"),
            Plot(title="Lag, seconds", keys=(f"{POLICY}/lag_s",), axis="s"),
            Plot(title="Training held by the sync", keys=(f"{POLICY}/held_s",), axis="s"),
        ],
        "What was measured": [
            Plot(title="Coverage", keys=coverage, axis="scored / expected"),
            Plot(title="Duration of an eval", keys=seconds, axis="s"),
            Plot(title="Discarded syncs; jobs without a score", keys=counters, axis="so far"),
        ],
        "Checkpoints by train step": [
            Plot(title=f"{name}: score", keys=(f"{CHECKPOINT}/{key}/score",), family=CHECKPOINT, axis="score")
            for name, key in named.items()
        ],
    }


def view(*, entity: str, project: str, datasets: Sequence[str], group: str | None = None) -> Workspace:
    """The view as wandb-workspaces has it; ConfigError if that package is missing."""
    try:
        with warnings.catch_warnings():
            # It still uses what pydantic calls old, which is nothing that a user can change.
            warnings.simplefilter("ignore", DeprecationWarning)
            import wandb_workspaces.reports.v2 as reports
            import wandb_workspaces.workspaces as workspaces
            from wandb_workspaces import expr
    except ImportError as error:
        raise ConfigError(
            f"the view needs wandb-workspaces: pip install 'live-eval[view]' ({error})"
        ) from error
    sections = [
        workspaces.Section(name=name, is_open=True, panels=[_panel(reports, plot) for plot in listed])
        for name, listed in plots(datasets).items()
    ]
    table = reports.WeavePanelSummaryTable(table_name=RESULTS_KEY)
    sections.append(workspaces.Section(name="All results", is_open=True, panels=[table]))
    filters = expr.And(expr.Metric("Group") == group) if group else ""
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=NAME if group is None else f"{NAME}, {group}",
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis=STEP_METRICS[POLICY]),
        runset_settings=workspaces.RunsetSettings(filters=filters),
    )


def spec(made: Workspace) -> dict[str, Any]:
    """The view as JSON values, as W&B would be sent it."""
    # Its rendering is the one thing of the package that is not public; saving uses the same.
    return json.loads(made._to_model().model_dump_json(by_alias=True, exclude_none=True))


def save(made: Workspace) -> str:
    """Keep the view in W&B; its address. LiveEvalError if W&B does not take it."""
    from wandb.errors import Error

    try:
        return str(made.save().url)
    except (Error, OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
        raise LiveEvalError(f"W&B did not take the view: {error}") from error


def _score(name: str, key: str) -> Plot:
    ends = tuple(f"{POLICY}/{key}/{end}" for end in INTERVAL)
    keys = (f"{POLICY}/{key}/score", *ends)
    return Plot(title=f"{name}: score, 95 %", keys=keys, dotted=ends, axis="score")


def _panel(reports: Any, plot: Plot) -> Any:
    return reports.LinePlot(
        title=plot.title,
        x=plot.x,
        y=list(plot.keys),
        title_x=plot.x.rpartition("/")[2].replace("_", " "),
        title_y=plot.axis,
        smoothing_factor=0.0,
        ignore_outliers=False,
        point_visualization_method="sampling",
        line_marks=dict.fromkeys(plot.dotted, "dotted"),
    )
