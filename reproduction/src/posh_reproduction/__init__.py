"""The experiments of the paper: their data sets, trials, report, and a demo.

``commands`` has what ``posh demo`` and ``posh reproduce`` run. ``datasets`` has the data sets of the
experiments. ``experiments`` measures and records. ``report`` makes tables and figures of records alone.
"""
