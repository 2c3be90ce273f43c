"""The report: one HTML page that opens from disk, with thumbnails beside it, in which people correct what was found."""

from holotype.report.build import build_report

__all__ = ["build_report"]
