/* What a heatmap can have on its axes: hyperparameters, and labels that a heatmap gives to selections of trials.

A heatmap is drawn of entries {trial, labels}. A trial that several selections have is several entries. */

const MOST_VALUES = 60;

/* Hyperparameters that vary among the trials, with few enough values for an axis, in the order of the preset. After
   them those that a heatmap of the preset has on an axis, if the trials have one value of them, and vary on its other axis. */
function axesOf(report, request, trials) {
  const few = report.named("hyperparameter").filter((column) => {
    if (column.isConstant || column.name === "schedule") return false;
    const count = new Set(trials.map((trial) => column.at(trial))).size;
    return count > 1 && count <= MOST_VALUES;
  });
  const vary = (name) => few.some((column) => column.name === name);
  const pairs = (report.presets[request.preset]?.heatmaps ?? []).flatMap(({ rows, columns }) => [[rows, columns], [columns, rows]]);
  const fixed = pairs.filter(([name, other]) => report.columns.has(name) && !vary(name) && vary(other)).map(([name]) => name);
  return [...report.ordered(request.preset, few), ...new Set(fixed.map((name) => report.columns.get(name)))];
}

const hyperparameterAxis = (column) => ({
  name: column.name,
  at: (entry) => column.at(entry.trial),
  sorted: (values) => distinct(values),
});

/* Labels have the order of their selections. */
const labelAxis = (name, selections) => ({
  name,
  at: (entry) => entry.labels[name],
  sorted: (values) => [...new Set(selections.map((selection) => selection.labels[name]))].filter((label) => values.includes(label)),
});

const labelsOf = (heatmap) => Object.keys(heatmap?.selections[0]?.labels ?? {});

/* The trials of each selection in turn. Without selections every trial is an entry without labels. */
function entriesOf(report, trials, selections) {
  if (!selections.length) return trials.map((trial) => ({ trial, labels: {} }));
  return selections.flatMap(({ labels, where }) => {
    const tests = Object.entries(where).map(([name, value]) => {
      const column = report.columns.get(name);
      const wanted = column ? column.decoded(value) : value;
      return (trial) => (column ? column.at(trial) : null) === wanted;
    });
    return trials.filter((trial) => tests.every((test) => test(trial))).map((trial) => ({ trial, labels }));
  });
}
