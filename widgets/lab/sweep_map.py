"""A sweep as the heat map and a spreadsheet have it: means over the seeds, with their spread."""

from __future__ import annotations

import math

from PySide6.QtCore import QCoreApplication

from engine.events import FIGURES, Mean, Sweep, SweepQuestion
from widgets.format import UNKNOWN
from widgets.lab.figure_words import figure_name, figure_text, figure_unit, setting_name, value_text
from widgets.lab.heat_map import HeatMapData


def heat_map(sweep: Sweep, figure: str) -> HeatMapData:
    """What the map shows of a figure: means over the seeds, with the spread in the tooltip."""
    question = sweep.question
    alone = len(question.axes) == 1
    shape = (1, question.shape[0]) if alone else question.shape
    cells = [[(column, 0) if alone else (row, column) for column in range(shape[1])] for row in range(shape[0])]
    means = [[sweep.mean(figure, cell) for cell in row] for row in cells]
    names = [setting_name(axis.name) for axis in question.axes]
    labels = [tuple(map(value_text, axis.values)) for axis in question.axes]
    known = [mean.mean for row in means for mean in row if math.isfinite(mean.mean)]
    low, high = (min(known), max(known)) if known else (math.nan, math.nan)
    return HeatMapData(
        rows=("",) if alone else labels[0],
        columns=labels[0] if alone else labels[1],
        down="" if alone else names[0],
        across=names[0] if alone else names[1],
        values=tuple(tuple(mean.mean for mean in row) for row in means),
        texts=tuple(tuple(figure_text(figure, m.mean) if math.isfinite(m.mean) else "" for m in row) for row in means),
        tips=tuple(
            tuple(_tip(sweep, figure, cell, mean) for cell, mean in zip(row, of_row, strict=True))
            for row, of_row in zip(cells, means, strict=True)
        ),
        title=f"{figure_unit(figure)} · {figure_name(figure)}".strip(" ·"),
        words=(figure_text(figure, low), figure_text(figure, high)) if known else ("", ""),
        waiting=frozenset(
            (row, column)
            for row, of_row in enumerate(cells)
            for column, cell in enumerate(of_row)
            if len(sweep.of_cell(cell)) < len(question.seeds)
        ),
    )


def _tip(sweep: Sweep, figure: str, cell: tuple[int, int], mean: Mean) -> str:
    question = sweep.question
    lines = [cell_words(question, cell)]
    if not mean.count:
        return "\n".join([*lines, UNKNOWN])
    text = f"{figure_name(figure)}: {figure_text(figure, mean.mean, unit=True)}"
    if mean.count > 1:
        text += f" ± {figure_text(figure, mean.deviation)}"
    lines.append(text)
    seed = QCoreApplication.translate("SweepPage", "seed {seed}")
    lines += [
        f"{seed.format(seed=str(question.seeds[place])[:20])}: {figure_text(figure, run.figure(figure))}"
        for place, number in enumerate(question.numbers(cell))
        if (run := sweep.runs[number]) is not None
    ]
    return "\n".join(lines)


def cell_words(question: SweepQuestion, cell: tuple[int, int]) -> str:
    """A cell's settings: "temperature 0.8 · top-p 0.9"."""
    return " · ".join(
        f"{setting_name(axis.name)} {value_text(axis.values[at])}"
        for axis, at in zip(question.axes, cell, strict=False)
    )


def table(sweep: Sweep) -> str:
    """Tabs between columns: the settings, then mean and standard deviation of each figure."""
    heads = [axis.name for axis in sweep.question.axes] + ["runs"]
    for figure in FIGURES:
        heads += [figure, f"{figure}_deviation"]
    lines = ["\t".join(heads)]
    for cell in sweep.question.cells:
        values = [f"{axis.values[at]:g}" for axis, at in zip(sweep.question.axes, cell, strict=False)]
        fields = [*values, str(len(sweep.of_cell(cell)))]
        for figure in FIGURES:
            mean = sweep.mean(figure, cell)
            fields += [f"{value:.6g}" if math.isfinite(value) else "" for value in (mean.mean, mean.deviation)]
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"
