"""Who may import whom: the table of the design, a row for each module or pattern of modules, kept by `test_imports`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.import_rules import LAUNCHERS, LOOP, METHOD, PLAN, PLANNING, STORAGE, STUDY, Rule

TABLE: Mapping[str, Rule] = {
    "cluster": Rule(),
    "cluster.spot_notice": Rule(may=("psutil",), never=(*PLANNING, "sweeper")),
    "cluster.access": Rule(may=("sweeper.cluster",), never=PLANNING),
    "cluster.command": Rule(may=("cluster.access", "sweeper.command", "sweeper.spec"), never=PLANNING),
    "cluster.package": Rule(may=("sweeper.spec",), never=PLANNING),
    "cluster.checks": Rule(may=("sweeper", "trainables.data.errors"), never=("torch", "ray", *METHOD)),
    "cluster.jobs": Rule(
        may=("ray", "cluster.access", "sweeper.cluster", "sweeper.command"), never=("torch", "trainables")
    ),
    "cluster.submit": Rule(may=("cluster", "sweeper"), never=("torch", "ray", "trainables")),
    "search_spaces": Rule(),
    "search_spaces.*": Rule(
        may=("sweeper.spec", "optuna.distributions", "search_spaces._protocols"), never=("torch", "ray")
    ),
    "sweeper": Rule(),
    "sweeper.grid": Rule(never=PLANNING),
    "sweeper.metric": Rule(may=("sweeper.grid", "trainables.metrics"), never=PLANNING),
    "sweeper.rules": Rule(may=("sweeper.grid",), never=PLANNING),
    "sweeper.study": Rule(may=("optuna.distributions", *STUDY[:3]), never=PLANNING),
    "sweeper.spec": Rule(may=("search_spaces", *STUDY), never=PLANNING),
    "sweeper.trials": Rule(may=PLAN[:1], never=PLANNING),
    "sweeper.cohorts": Rule(may=PLAN[:2], never=PLANNING),
    "sweeper.devices": Rule(never=PLANNING),
    "sweeper.loads": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.ends": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.packing": Rule(may=(*PLAN[:3], "sweeper.devices", "sweeper.loads", "sweeper.ends"), never=PLANNING),
    "sweeper.samplers": Rule(may=("optuna", "sweeper.trials", *STUDY), never=("ray", "torch", "trainables")),
    "sweeper.search": Rule(may=("optuna", "sweeper.samplers", *STUDY), never=("ray", "torch", "trainables")),
    "sweeper.attempts": Rule(may=(*PLAN[:3], "sweeper.feed"), never=PLANNING),
    "sweeper.tuning": Rule(
        may=("ray", "sweeper.attempts", "sweeper.cohorts", "sweeper.places", "sweeper.stopping"),
        never=("torch", "trainables", *METHOD),
    ),
    "sweeper.feed": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.course": Rule(
        may=("sweeper.search", "sweeper.feed", "sweeper.warm", *PLAN[:3], *STUDY),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.waves": Rule(
        may=("sweeper.course", "sweeper.feed", *PLAN[:3], *STUDY),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.warm": Rule(
        may=("sweeper.store", "sweeper.files", *STUDY), never=("ray", "torch", "optuna", "trainables")
    ),
    "sweeper.rungs": Rule(may=("sweeper.metric",), never=PLANNING),
    "sweeper.board": Rule(may=("sweeper.metric", "sweeper.rungs"), never=PLANNING),
    "sweeper.referee": Rule(
        may=("ray", "sweeper.board", "trainables.contract"), never=("torch", "optuna", "pandas", *METHOD)
    ),
    "sweeper.study_checks": Rule(
        may=(*STUDY, "trainables.config", "trainables.preflight", "trainables.sections"), never=("ray", *METHOD)
    ),
    "sweeper.study_tables": Rule(
        may=("optuna", "pandas", "numpy", "sweeper.metric", "sweeper.search"), never=("ray", "torch", "trainables")
    ),
    "sweeper.study_axes": Rule(may=("optuna", "matplotlib", "sweeper.heatmap"), never=("ray", "torch", "trainables")),
    "sweeper.study_figures": Rule(
        may=("optuna", "numpy", "matplotlib", "sweeper.heatmap", "sweeper.study_axes", "sweeper.study_tables"),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.study_views": Rule(
        may=(
            *("optuna", "pandas", "numpy", "matplotlib", "sweeper.files", "sweeper.heatmap", "sweeper.metric"),
            *("sweeper.summary", "sweeper.study_figures", "sweeper.study_tables"),
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.journal": Rule(
        may=("optuna", "sweeper.search"), never=("ray", "torch", "trainables", "pandas", "pyarrow")
    ),
    "sweeper.patience": Rule(never=PLANNING),
    "sweeper.disk": Rule(never=PLANNING),
    "sweeper.files": Rule(may=("pyarrow", "sweeper.disk", "sweeper.patience"), never=("ray", "torch", "trainables")),
    "sweeper.schema": Rule(may=("pyarrow", "numpy", *STORAGE[:1]), never=("ray", "torch", "trainables")),
    "sweeper.rows": Rule(may=("pyarrow", "pandas", "numpy", *STORAGE[:2]), never=("ray", "torch", "trainables")),
    "sweeper.folder": Rule(may=("pyarrow", "sweeper.patience", *STORAGE[:3]), never=("ray", "torch", "trainables")),
    "sweeper.folding": Rule(may=("pyarrow", "sweeper.folder", *STORAGE[:3]), never=("ray", "torch", "trainables")),
    "sweeper.store": Rule(
        may=("pyarrow", "pandas", "numpy", "sweeper.folder", "sweeper.folding", *STORAGE[:3]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.cells": Rule(may=("pandas", "numpy"), never=("ray", "torch", "trainables")),
    "sweeper.colour_scale": Rule(may=("pandas", "numpy"), never=("ray", "torch", "trainables")),
    "sweeper.replaced": Rule(may=("pyarrow", "sweeper.folder", *STORAGE[:4]), never=("ray", "torch", "trainables")),
    "sweeper.heatmap": Rule(
        may=(
            *("pandas", "numpy", "matplotlib", "sweeper.spec", "sweeper.cells", "sweeper.colour_scale"),
            *STORAGE[:4],
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.summary": Rule(
        may=("pandas", "numpy", "sweeper.spec", "sweeper.cells", *STORAGE[:5]), never=("ray", "torch", "trainables")
    ),
    "sweeper.tables": Rule(may=("pandas", "numpy", "sweeper.spec", *STORAGE[:5]), never=("ray", "torch", "trainables")),
    "sweeper.curve_labels": Rule(may=("matplotlib", "sweeper.heatmap"), never=("ray", "torch", "trainables")),
    "sweeper.curves": Rule(
        may=("pandas", "numpy", "matplotlib", "sweeper.spec", "sweeper.tables", "sweeper.curve_labels", *STORAGE[:5]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.trajectory": Rule(
        may=("pandas", "sweeper.spec", "sweeper.tables", "sweeper.curves", *STORAGE[:5]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.progress": Rule(may=("rich", "sweeper.spec"), never=("ray", "torch", "trainables")),
    "sweeper.dispatch": Rule(
        may=(
            "ray",
            "sweeper.attempts",
            "sweeper.cluster",
            "sweeper.feed",
            "sweeper.tuning",
            "sweeper.files",
            "sweeper.groups",
            "sweeper.places",
            "sweeper.stopping",
            "trainables.ray_train",
            "trainables.contract",
            *PLAN,
        ),
        never=("optuna", "pandas", *METHOD),
    ),
    "sweeper.groups": Rule(may=("ray",), never=("torch", "trainables", *METHOD)),
    "sweeper.cluster": Rule(may=("ray", "psutil", *PLAN), never=("optuna", "torch", "pandas", *METHOD)),
    "sweeper.stopping": Rule(never=PLANNING),
    "sweeper.lifeline": Rule(may=("sweeper.cluster",), never=PLANNING),
    "sweeper.preset_keys": Rule(may=("sweeper.command", "sweeper.spec"), never=PLANNING),
    "sweeper.describe": Rule(
        may=(
            "sweeper.grid",
            *(f"trainables.{it}" for it in ("catalog", "checks", "data", "described", "metrics", "reported")),
        ),
        never=("ray", "optuna", "pandas", *METHOD),
    ),
    "sweeper.command": Rule(may=STUDY, never=PLANNING),
    "sweeper.version": Rule(never=PLANNING),
    "sweeper.changes": Rule(may=("sweeper.command", "sweeper.spec", *STUDY), never=PLANNING),
    "sweeper.outline": Rule(
        may=(*PLAN, *STUDY, "sweeper.changes", "sweeper.plan", *STORAGE[:2]), never=("torch", "ray", "trainables")
    ),
    "sweeper.plan": Rule(
        may=(*PLAN, *STUDY, "sweeper.changes", "sweeper.waves", *STORAGE[:2]), never=("torch", "ray", "trainables")
    ),
    "sweeper.prepare": Rule(
        may=(
            "sweeper",
            *(f"trainables.{it}" for it in ("checks", "config", "preflight", "reported", "streams", "data.datasets")),
        ),
        never=("ray", *METHOD),
    ),
    "sweeper.studies": Rule(
        may=("sweeper", *(f"trainables.{it}" for it in ("config", "preflight", "streams", "data.datasets"))),
        never=("ray", *METHOD),
    ),
    "sweeper.cutting": Rule(may=("sweeper", "trainables.config"), never=("ray", "optuna", *METHOD)),
    "sweeper.hardware": Rule(never=PLANNING),
    "sweeper.places": Rule(may=("sweeper.cluster", "sweeper.attempts"), never=PLANNING),
    "sweeper.probes": Rule(may=("sweeper.files", "sweeper.hardware", *PLAN[:3]), never=("torch", "ray", "trainables")),
    "sweeper.placing": Rule(
        may=(
            *(f"sweeper.{it}" for it in ("devices", "hardware", "loads", "places", "probes")),
            *PLAN,
        ),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.survey": Rule(
        may=(*(f"sweeper.{it}" for it in ("cluster", "devices", "loads", "probes")), *PLAN[:3]),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.probing": Rule(
        may=("ray", "sweeper.hardware", "sweeper.probes", "sweeper.stopping", "trainables.ray_train"),
        never=("optuna", "pandas", *METHOD),
    ),
    "sweeper.preview": Rule(may=("sweeper",), never=("ray", "optuna", *METHOD)),
    "sweeper.feeding": Rule(may=("sweeper", "trainables.ray_train", "trainables.config"), never=METHOD),
    "sweeper.collect": Rule(
        may=("sweeper.progress", "sweeper.feed", "sweeper.cohorts", *STORAGE[:4]),
        never=("ray", "torch", "optuna", "trainables"),
    ),
    "sweeper.findings": Rule(
        may=("pandas", "sweeper.tables", "sweeper.trajectory", *PLAN[:1], *STORAGE),
        never=("ray", "torch", "optuna", "trainables"),
    ),
    "sweeper.run": Rule(may=("sweeper", "trainables"), never=("torch", "optuna", *METHOD)),
    "trainables": Rule(),
    "trainables.methods": Rule(),
    "trainables.losses": Rule(),
    "trainables.networks": Rule(),
    "trainables.data": Rule(),
    "trainables.evaluation": Rule(),
    "trainables.checks": Rule(never=LAUNCHERS),
    "trainables.contract": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.optimiser": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.catalog": Rule(
        may=("torch", "trainables.contract", "trainables.checks", "trainables.methods", "trainables.networks"),
        never=(*LAUNCHERS, "trainables.train"),
    ),
    "trainables.config": Rule(
        may=(
            "torch",
            *(f"trainables.{it}" for it in ("contract", "checks", "catalog", "sections", "data", "networks")),
        ),
        never=(*LAUNCHERS, "trainables.methods", "trainables.train"),
    ),
    "trainables.sections": Rule(
        may=("torch", *(f"trainables.{it}" for it in ("checks", "data", "networks"))),
        never=(*LAUNCHERS, "trainables.methods", "trainables.train"),
    ),
    "trainables.peers": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.fuse": Rule(
        may=("torch", "trainables.contract", "trainables.optimiser", "trainables.peers"), never=(*LAUNCHERS, *METHOD)
    ),
    "trainables.evaluate": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.population": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.schedule": Rule(may=("torch", "trainables.checks"), never=LAUNCHERS),
    "trainables.checkpoint": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.parting": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.saving": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.limits": Rule(may=("torch", "trainables.contract"), never=LAUNCHERS),
    "trainables.notice": Rule(never=LAUNCHERS),
    "trainables.worker": Rule(
        may=(*LOOP, "trainables.train", "trainables.notice", "trainables.parting"),
        never=(*LAUNCHERS, "trainables.methods"),
    ),
    "trainables.watch": Rule(may=("trainables.contract",), never=LAUNCHERS),
    "trainables.metrics": Rule(never=("torch", *LAUNCHERS)),
    "trainables.described": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.reported": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.preflight": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.cohort": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.streams": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.measure": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.sharing": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.train")),
    "trainables.train": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods")),
    "trainables.ray_train": Rule(
        may=(
            "ray",
            "torch",
            *(f"trainables.{it}" for it in ("measure", "sharing", "config", "contract", "peers", "population")),
            *(f"trainables.{it}" for it in ("notice", "watch", "worker")),
        ),
        never=("sweeper", "search_spaces", "optuna", "pandas", "pyarrow", *METHOD),
    ),
    "trainables.methods.*": Rule(
        may=("torch", "trainables.contract", "trainables.checks", "trainables.losses", "trainables.networks"),
        never=(*LAUNCHERS, "trainables.methods", "trainables.data", "trainables.evaluation", "trainables.train"),
    ),
    "trainables.losses.*": Rule(may=("torch",), never=(*LAUNCHERS, "torch.distributed", "trainables")),
    "trainables.networks.*": Rule(
        may=("torch", "torchvision", "trainables.checks", "trainables.networks"),
        never=(*LAUNCHERS, "trainables.methods", "trainables.losses", "trainables.data", "trainables.train"),
    ),
    "trainables.data.*": Rule(
        may=("torch", "torchvision", "numpy", "sklearn", "filelock", "PIL", "trainables.checks", "trainables.data"),
        never=(*LAUNCHERS, *METHOD, "trainables.train"),
    ),
    "trainables.evaluation.*": Rule(
        may=("torch", "numpy", "scipy", "sklearn", "trainables.checks", "trainables.contract", "trainables.evaluation"),
        never=(*LAUNCHERS, "trainables.methods", "trainables.train"),
    ),
}
"""Pattern of a module's name -> its rule; a module's own name goes before a pattern. New modules need a row."""
