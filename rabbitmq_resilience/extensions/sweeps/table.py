"""Write all cells of a sweep as tables."""

from __future__ import annotations

from rabbitmq_resilience.extensions.sweeps.capacity_answer import capacity
from rabbitmq_resilience.extensions.sweeps.leaderboard import ranking
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.missing_runs import missing_runs
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep
from rabbitmq_resilience.extensions.sweeps.sweep_summary import TEMPLATES, WORDS, rows
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report.markdown_tables import markdown


def write_tables(results: Results, sweep: Sweep) -> None:
    """Write runs.csv, runs.parquet and table.md into the folder of the results."""
    axes = [axis.called for axis in sweep.spec.axes]
    results.write_tables(axes, sweep.spec.measures)
    write_whole(results.folder / "table.md", table(results, sweep))


def table(results: Results, sweep: Sweep) -> str:
    """Return the table of all cells as Markdown."""
    axes = [axis.called for axis in sweep.spec.axes]
    measures = [MEASURES[name] for name in sweep.spec.measures]
    return markdown(
        TEMPLATES / "table.md.j2",
        spec=sweep.spec,
        of=results.of,
        axes=axes,
        measures=sweep.spec.measures,
        heads=[*axes, *(", ".join(filter(None, [one.what, one.unit])) for one in measures), "Runs"],
        rows=rows(results, sweep),
        board=ranking(results, sweep.spec),
        paced=sweep.is_paced,
        capacity=capacity(results, sweep.spec),
        missing=missing_runs(results, sweep.spec),
        **WORDS,
    )
