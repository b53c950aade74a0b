"""Writes the figures and tables of a search's studies into the store, and returns them as text for the terminal."""

from sweeper.report import studies
from sweeper.search.dashboard_journal import PATH, begin_journal
from sweeper.search.search_plan import SearchPlan
from sweeper.storage.files import Files


def write(plan: SearchPlan, files: Files) -> str:
    """Write the views of every study, and the journal if there is none. Returns the text to print."""
    texts = []
    copy = begin_journal(files, plan.views) if files.read(PATH.format(plan.views)) is None else lambda study_run: None
    for study_run in plan.study_runs:
        copy(study_run)
        name, study = study_run.study.name, study_run.engine.optuna_study
        title = f"{plan.name} ({plan.request})" + (f", study {name}" if len(plan.study_runs) > 1 else "")
        folder, objectives = f"studies/{plan.views}/{name}", study_run.study.search.objectives
        texts.append(studies.write(files, folder, title, study, objectives, plan.sweep.contours))
    return "\n\n".join(texts)
