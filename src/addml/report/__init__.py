"""Findings as something to look at: one self-contained HTML file, Markdown, or figures for a paper."""

from addml.report.plots import write_figures
from addml.report.writing import write_report

__all__ = ["write_figures", "write_report"]
