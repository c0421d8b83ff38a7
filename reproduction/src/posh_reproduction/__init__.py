"""The experiments of the paper: their data sets, trials, report, and a demo.

``commands`` has the commands ``posh demo`` and ``posh reproduce``. ``datasets`` has the data sets of the
experiments. ``experiments`` measures and records. ``report`` makes tables and figures of records alone.
"""
