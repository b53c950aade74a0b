"""Who may import whom: the table of the design, a row for each module or pattern of modules, kept by `test_imports`."""

from __future__ import annotations

from collections.abc import Mapping

from tests.import_rules import LAUNCHERS, LOOP, METHOD, PLAN, PLANNING, STORAGE, STORE_PARTS, STUDY, Rule

TABLE: Mapping[str, Rule] = {
    "cluster": Rule(),
    "cluster.spot_notice": Rule(may=("psutil",), never=(*PLANNING, "sweeper")),
    "cluster.access": Rule(may=("sweeper.execution.connection",), never=PLANNING),
    "cluster.command": Rule(may=("cluster.access", "sweeper.cli.arguments", "sweeper.spec.sweep"), never=PLANNING),
    "cluster.entrypoint": Rule(never=(*PLANNING, "sweeper")),
    "cluster.package": Rule(may=("sweeper.spec.sweep",), never=PLANNING),
    "cluster.checks": Rule(may=("sweeper", "trainables.data.errors"), never=("torch", "ray", *METHOD)),
    "cluster.jobs": Rule(
        may=("ray", "cluster.access", "sweeper.execution.connection", "sweeper.cli.arguments"),
        never=("torch", "trainables"),
    ),
    "cluster.submit": Rule(may=("cluster", "sweeper"), never=("torch", "ray", "trainables")),
    "search_spaces": Rule(),
    "search_spaces.*": Rule(
        may=("sweeper.spec.sweep", "optuna.distributions", "search_spaces._protocols"), never=("torch", "ray")
    ),
    "sweeper": Rule(),
    "sweeper.spec.grid": Rule(never=PLANNING),
    "sweeper.spec.metric": Rule(may=("sweeper.spec.grid", "trainables.evaluation.metrics"), never=PLANNING),
    "sweeper.spec.schedulers": Rule(may=("sweeper.spec.grid",), never=PLANNING),
    "sweeper.spec.search": Rule(may=("optuna.distributions", *STUDY[:3]), never=PLANNING),
    "sweeper.spec.sweep": Rule(may=("search_spaces", *STUDY), never=PLANNING),
    "sweeper.plan.trials": Rule(may=PLAN[:1], never=PLANNING),
    "sweeper.plan.cohorts": Rule(may=PLAN[:2], never=PLANNING),
    "sweeper.packing.devices": Rule(never=PLANNING),
    "sweeper.packing.workloads": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.packing.makespan": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.packing.packer": Rule(
        may=(*PLAN[:3], "sweeper.packing.devices", "sweeper.packing.workloads", "sweeper.packing.makespan"),
        never=PLANNING,
    ),
    "sweeper.search.samplers": Rule(
        may=("optuna", "sweeper.plan.trials", *STUDY), never=("ray", "torch", "trainables")
    ),
    "sweeper.search.ask_tell": Rule(
        may=("optuna", "sweeper.search.samplers", *STUDY), never=("ray", "torch", "trainables")
    ),
    "sweeper.execution.retries": Rule(may=(*PLAN[:3], "sweeper.plan.cohort_source"), never=PLANNING),
    "sweeper.execution.tune_adapter": Rule(
        may=(
            "ray",
            "sweeper.execution.retries",
            "sweeper.plan.cohorts",
            "sweeper.packing.slots",
            "sweeper.execution.stop_signal",
        ),
        never=("torch", "trainables", *METHOD),
    ),
    "sweeper.plan.cohort_source": Rule(may=PLAN[:3], never=PLANNING),
    "sweeper.search.study_run": Rule(
        may=("sweeper.search.ask_tell", "sweeper.plan.cohort_source", "sweeper.search.warm_start", *PLAN[:3], *STUDY),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.search.waves": Rule(
        may=("sweeper.search.study_run", "sweeper.plan.cohort_source", *PLAN[:3], *STUDY),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.search.warm_start": Rule(
        may=("sweeper.storage.store", "sweeper.storage.io.files", "sweeper.storage.json_records", *STUDY),
        never=("ray", "torch", "optuna", "trainables"),
    ),
    "sweeper.pruning.halving": Rule(may=("sweeper.spec.metric",), never=PLANNING),
    "sweeper.pruning.rung_server": Rule(may=("sweeper.spec.metric", "sweeper.pruning.halving"), never=PLANNING),
    "sweeper.pruning.rung_client": Rule(
        may=("ray", "sweeper.pruning.rung_server", "trainables.contract"), never=("torch", "optuna", "pandas", *METHOD)
    ),
    "sweeper.search.validate": Rule(
        may=(*STUDY, "trainables.config.trial", "trainables.training.preflight", "trainables.config.sections"),
        never=("ray", *METHOD),
    ),
    "sweeper.report.studies.tables": Rule(
        may=("optuna", "pandas", "numpy", "sweeper.spec.metric", "sweeper.search.ask_tell"),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.studies.axes": Rule(
        may=("optuna", "matplotlib", "sweeper.report.heatmap"), never=("ray", "torch", "trainables")
    ),
    "sweeper.report.studies.figures": Rule(
        may=(
            "optuna",
            "numpy",
            "matplotlib",
            "sweeper.report.heatmap",
            "sweeper.report.studies.axes",
            "sweeper.report.studies.tables",
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.studies.publish": Rule(
        may=(
            *(
                "optuna",
                "pandas",
                "numpy",
                "matplotlib",
                "sweeper.storage.io.files",
                "sweeper.report.heatmap",
                "sweeper.spec.metric",
            ),
            *("sweeper.report.summary", "sweeper.report.studies.figures", "sweeper.report.studies.tables"),
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.search.dashboard_journal": Rule(
        may=("optuna", "sweeper.search.ask_tell"), never=("ray", "torch", "trainables", "pandas", "pyarrow")
    ),
    "sweeper.storage.io.retry": Rule(never=PLANNING),
    "sweeper.storage.io.local_disk": Rule(never=PLANNING),
    "sweeper.storage.io.address": Rule(never=PLANNING),
    "sweeper.storage.io.store_identity": Rule(may=("sweeper.storage.io.retry",), never=PLANNING),
    "sweeper.storage.io.filesystem": Rule(
        may=("pyarrow", "sweeper.storage.io.address"), never=("ray", "torch", "trainables")
    ),
    "sweeper.storage.io.files": Rule(may=("pyarrow", *STORE_PARTS), never=("ray", "torch", "trainables")),
    "sweeper.storage.json_records": Rule(may=("sweeper.storage.io.files",), never=("ray", "torch", "trainables")),
    "sweeper.storage.schema": Rule(may=("pyarrow", "numpy", *STORAGE[:1]), never=("ray", "torch", "trainables")),
    "sweeper.storage.arrow_tables": Rule(
        may=("pyarrow", "pandas", "numpy", "sweeper.storage.digest", *STORAGE[:2]), never=("ray", "torch", "trainables")
    ),
    "sweeper.storage.digest": Rule(may=STORAGE[:1], never=("ray", "torch", "trainables")),
    "sweeper.storage.parquet_folder": Rule(
        may=("pyarrow", "sweeper.storage.digest", "sweeper.storage.io.retry", *STORAGE[:3]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.storage.damaged_files": Rule(
        may=(
            "pyarrow",
            "sweeper.storage.digest",
            "sweeper.storage.parquet_folder",
            "sweeper.storage.io.retry",
            *STORAGE[:3],
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.storage.compaction": Rule(
        may=("pyarrow", "sweeper.storage.damaged_files", "sweeper.storage.parquet_folder", *STORAGE[:3]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.storage.store_reader": Rule(
        may=("pyarrow", "sweeper.storage.damaged_files", "sweeper.storage.parquet_folder", *STORAGE[:3]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.storage.store": Rule(
        may=(
            *(
                "pyarrow",
                "pandas",
                "numpy",
                "sweeper.storage.damaged_files",
                "sweeper.storage.parquet_folder",
                "sweeper.storage.compaction",
            ),
            *("sweeper.storage.store_reader", *STORAGE[:3]),
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.storage.orphaned_checkpoints": Rule(
        may=("sweeper.storage.parquet_folder", *STORAGE[3:4]), never=("ray", "torch", "trainables")
    ),
    "sweeper.report.heatmap_cells": Rule(may=("pandas", "numpy"), never=("ray", "torch", "trainables")),
    "sweeper.report.colour_scale": Rule(may=("pandas", "numpy"), never=("ray", "torch", "trainables")),
    "sweeper.storage.replaced_rows": Rule(
        may=("pyarrow", "sweeper.storage.digest", "sweeper.storage.parquet_folder", *STORAGE[:4]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.heatmap": Rule(
        may=(
            *(
                "pandas",
                "numpy",
                "matplotlib",
                "sweeper.spec.sweep",
                "sweeper.report.heatmap_cells",
                "sweeper.report.colour_scale",
            ),
            *STORAGE[:4],
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.summary": Rule(
        may=(
            "pandas",
            "numpy",
            "sweeper.spec.metric",
            "sweeper.spec.sweep",
            "sweeper.report.heatmap_cells",
            *STORAGE[:5],
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.paper_table": Rule(
        may=("pandas", "numpy", "sweeper.spec.sweep", *STORAGE[:5]), never=("ray", "torch", "trainables")
    ),
    "sweeper.report.curve_labels": Rule(
        may=("matplotlib", "sweeper.report.heatmap"), never=("ray", "torch", "trainables")
    ),
    "sweeper.report.curves": Rule(
        may=(
            "pandas",
            "numpy",
            "matplotlib",
            "sweeper.spec.sweep",
            "sweeper.report.paper_table",
            "sweeper.report.curve_labels",
            *STORAGE[:5],
        ),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.report.trajectory": Rule(
        may=("pandas", "sweeper.spec.sweep", "sweeper.report.paper_table", "sweeper.report.curves", *STORAGE[:5]),
        never=("ray", "torch", "trainables"),
    ),
    "sweeper.cli.running_cohorts": Rule(never=PLANNING),
    "sweeper.cli.progress": Rule(
        may=("rich", "sweeper.spec.sweep", "sweeper.cli.running_cohorts"), never=("ray", "torch", "trainables")
    ),
    "sweeper.execution.executor": Rule(
        may=(
            "ray",
            "sweeper.execution.retries",
            "sweeper.execution.connection",
            "sweeper.plan.cohort_source",
            "sweeper.execution.tune_adapter",
            "sweeper.storage.io.files",
            "sweeper.execution.placement_groups",
            "sweeper.packing.slots",
            "sweeper.execution.stop_signal",
            "trainables.worker.ray_train",
            "trainables.contract",
            *PLAN,
        ),
        never=("optuna", "pandas", *METHOD),
    ),
    "sweeper.execution.placement_groups": Rule(may=("ray",), never=("torch", "trainables", *METHOD)),
    "sweeper.execution.scratch": Rule(may=("psutil",), never=PLANNING),
    "sweeper.execution.connection": Rule(
        may=("ray", "sweeper.execution.scratch", *PLAN), never=("optuna", "torch", "pandas", *METHOD)
    ),
    "sweeper.execution.stop_signal": Rule(never=PLANNING),
    "sweeper.execution.node_health": Rule(may=("psutil",), never=PLANNING),
    "sweeper.execution.node_watchdog": Rule(may=("sweeper.execution.connection",), never=PLANNING),
    "sweeper.cli.preset_keys": Rule(may=("sweeper.cli.arguments", "sweeper.spec.sweep"), never=PLANNING),
    "sweeper.cli.describe": Rule(
        may=(
            "sweeper.spec.grid",
            *(f"trainables.{it}" for it in ("catalog", "checks", "data", "described", "metrics", "reported")),
        ),
        never=("ray", "optuna", "pandas", *METHOD),
    ),
    "sweeper.cli.option_values": Rule(may=STUDY[:1], never=PLANNING),
    "sweeper.cli.arguments": Rule(may=("sweeper.cli.option_values", *STUDY), never=PLANNING),
    "sweeper.version": Rule(never=PLANNING),
    "sweeper.plan.changes": Rule(may=("sweeper.cli.arguments", "sweeper.spec.sweep", *STUDY), never=PLANNING),
    "sweeper.cli.outline": Rule(
        may=(*PLAN, *STUDY, "sweeper.plan.changes", "sweeper.plan.plan", *STORAGE[:2]),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.plan.plan": Rule(
        may=(
            *PLAN,
            *STUDY,
            "sweeper.plan.changes",
            "sweeper.storage.json_records",
            "sweeper.search.waves",
            *STORAGE[:2],
        ),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.cli.prepare": Rule(
        may=(
            "sweeper",
            *(f"trainables.{it}" for it in ("checks", "config", "preflight", "reported", "streams", "data.datasets")),
        ),
        never=("ray", *METHOD),
    ),
    "sweeper.search.prepare": Rule(
        may=("sweeper", *(f"trainables.{it}" for it in ("config", "preflight", "streams", "data.datasets"))),
        never=("ray", *METHOD),
    ),
    "sweeper.packing.allocate": Rule(may=("sweeper", "trainables.config.trial"), never=("ray", "optuna", *METHOD)),
    "sweeper.packing.device_kinds": Rule(never=PLANNING),
    "sweeper.packing.slots": Rule(may=("sweeper.execution.connection", "sweeper.execution.retries"), never=PLANNING),
    "sweeper.packing.measurements": Rule(
        may=("sweeper.storage.io.files", "sweeper.packing.device_kinds", "sweeper.storage.json_records", *PLAN[:3]),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.packing.placement": Rule(
        may=(
            *(f"sweeper.{it}" for it in ("devices", "hardware", "loads", "places", "probes")),
            *PLAN,
        ),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.packing.profiler": Rule(
        may=(*(f"sweeper.{it}" for it in ("cluster", "devices", "loads", "probes")), *PLAN[:3]),
        never=("torch", "ray", "trainables"),
    ),
    "sweeper.execution.remote_profiler": Rule(
        may=(
            "ray",
            "sweeper.packing.device_kinds",
            "sweeper.packing.measurements",
            "sweeper.execution.stop_signal",
            "trainables.worker.ray_train",
        ),
        never=("optuna", "pandas", *METHOD),
    ),
    "sweeper.cli.preview": Rule(may=("sweeper",), never=("ray", "optuna", *METHOD)),
    "sweeper.cli.stages": Rule(may=("sweeper", "trainables.worker.ray_train", "trainables.config.trial"), never=METHOD),
    "sweeper.cli.recorder": Rule(
        may=(
            "sweeper.cli.progress",
            "sweeper.plan.cohort_source",
            "sweeper.plan.cohorts",
            "sweeper.plan.trials",
            *STORAGE[:4],
        ),
        never=("ray", "torch", "optuna", "trainables"),
    ),
    "sweeper.report.publish": Rule(
        may=("pandas", "sweeper.report.paper_table", "sweeper.report.trajectory", *PLAN[:1], *STORAGE),
        never=("ray", "torch", "optuna", "trainables"),
    ),
    "sweeper.cli.conclusion": Rule(may=("sweeper", "pandas"), never=("torch", "ray", "optuna", "trainables")),
    "sweeper.cli.fresh": Rule(may=("sweeper",), never=("torch", "ray", "optuna", "trainables")),
    "sweeper.run": Rule(may=("sweeper", "trainables"), never=("torch", "optuna", *METHOD)),
    "trainables": Rule(),
    "trainables.methods": Rule(),
    "trainables.losses": Rule(),
    "trainables.networks": Rule(),
    "trainables.data": Rule(),
    "trainables.evaluation": Rule(),
    "trainables.validation": Rule(never=LAUNCHERS),
    "trainables.contract": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.learners.optimisers": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.catalog": Rule(
        may=("torch", "trainables.contract", "trainables.validation", "trainables.methods", "trainables.networks"),
        never=(*LAUNCHERS, "trainables.training.train"),
    ),
    "trainables.config.trial": Rule(
        may=(
            "torch",
            *(f"trainables.{it}" for it in ("contract", "checks", "catalog", "sections", "data", "networks")),
        ),
        never=(*LAUNCHERS, "trainables.methods", "trainables.training.train"),
    ),
    "trainables.config.sections": Rule(
        may=("torch", *(f"trainables.{it}" for it in ("checks", "data", "networks"))),
        never=(*LAUNCHERS, "trainables.methods", "trainables.training.train"),
    ),
    "trainables.learners.data_parallel": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.learners.stack": Rule(
        may=("torch", "trainables.contract", "trainables.learners.optimisers", "trainables.learners.data_parallel"),
        never=(*LAUNCHERS, *METHOD),
    ),
    "trainables.training.evaluators": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.population": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.learners.lr_schedule": Rule(may=("torch", "trainables.validation"), never=LAUNCHERS),
    "trainables.training.standing": Rule(may=("torch", "trainables.contract"), never=LAUNCHERS),
    "trainables.training.checkpoint": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.parting": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.checkpointing": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.worker.memory_limit": Rule(may=("torch", "trainables.contract"), never=LAUNCHERS),
    "trainables.worker.sigterm": Rule(never=LAUNCHERS),
    "trainables.worker.worker": Rule(
        may=(*LOOP, "trainables.training.train", "trainables.worker.sigterm", "trainables.training.parting"),
        never=(*LAUNCHERS, "trainables.methods"),
    ),
    "trainables.worker.step_watchdog": Rule(may=("trainables.contract",), never=LAUNCHERS),
    "trainables.evaluation.metrics": Rule(never=("torch", *LAUNCHERS)),
    "trainables.config.described": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.reported": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.preflight": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.cohort": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")),
    "trainables.learners.streams": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.profiling.throughput": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.profiling.contention": Rule(
        may=LOOP, never=(*LAUNCHERS, "trainables.methods", "trainables.training.train")
    ),
    "trainables.training.train": Rule(may=LOOP, never=(*LAUNCHERS, "trainables.methods")),
    "trainables.worker.ray_train": Rule(
        may=(
            "ray",
            "torch",
            *(f"trainables.{it}" for it in ("measure", "sharing", "config", "contract", "peers", "population")),
            *(f"trainables.{it}" for it in ("notice", "watch", "worker")),
        ),
        never=("sweeper", "search_spaces", "optuna", "pandas", "pyarrow", *METHOD),
    ),
    "trainables.methods.*": Rule(
        may=("torch", "trainables.contract", "trainables.validation", "trainables.losses", "trainables.networks"),
        never=(
            *LAUNCHERS,
            "trainables.methods",
            "trainables.data",
            "trainables.evaluation",
            "trainables.training.train",
        ),
    ),
    "trainables.losses.*": Rule(may=("torch",), never=(*LAUNCHERS, "torch.distributed", "trainables")),
    "trainables.networks.*": Rule(
        may=("torch", "torchvision", "trainables.validation", "trainables.networks"),
        never=(*LAUNCHERS, "trainables.methods", "trainables.losses", "trainables.data", "trainables.training.train"),
    ),
    "trainables.data.*": Rule(
        may=("torch", "torchvision", "numpy", "sklearn", "filelock", "PIL", "trainables.validation", "trainables.data"),
        never=(*LAUNCHERS, *METHOD, "trainables.training.train"),
    ),
    "trainables.evaluation.*": Rule(
        may=(
            "torch",
            "numpy",
            "scipy",
            "sklearn",
            "trainables.validation",
            "trainables.contract",
            "trainables.evaluation",
        ),
        never=(*LAUNCHERS, "trainables.methods", "trainables.training.train"),
    ),
}
"""Pattern of a module's name -> its rule; a module's own name goes before a pattern. New modules need a row."""
