/* The cells of a heatmap: means over trials, the framed cells and the range of colours, as in the pictures of a sweep. */

const STANDARD_ERRORS = 20;

const SPREADS = { interval: "95 % interval", deviation: "standard deviation" };
const EQUAL = 1e-9; // the largest deviation of values that differ by rounding alone
const MIN_IQM = 5;

/* Half the width of the 95 % interval of the mean of n values with a standard deviation; NaN where Python knows none.
   `halves[n]` is that of n values whose standard deviation is 1, and null below the fewest that have one. */
const halfWidth = (std, n, halves) => (std > EQUAL ? std * (halves[n] ?? NaN) : NaN);

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN);

/* What `summaries.py` says of a cell: over replicates, each of which counts once, with the mean of its trials. */
function summary(trials, metric, replicateOf, halves) {
  const groups = new Map();
  for (const trial of trials) {
    const value = metric.at(trial);
    if (typeof value !== "number" || Number.isNaN(value)) continue;
    const key = replicateOf(trial);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(value);
  }
  const count = [...groups.values()].reduce((sum, values) => sum + values.length, 0);
  const known = [...groups.values()].map(average).sort((left, right) => left - right);
  const [n, mean] = [known.length, average(known)];
  const std = n > 1 ? Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1)) : NaN;
  const cut = Math.floor(n / 4);
  const iqm = n >= MIN_IQM ? average(known.slice(cut, n - cut)) : NaN;
  return { mean, std, half: halfWidth(std, n, halves), iqm, n, count, missing: trials.length - count };
}

/* The trials of each cell, by the values of its axes. */
function membersOf(entries, rows, columns) {
  const members = new Map();
  for (const entry of entries) {
    const key = `${rows.at(entry)}\n${columns.at(entry)}`;
    if (!members.has(key)) members.set(key, []);
    members.get(key).push(entry.trial);
  }
  return members;
}

/* The cells that Python has made of all trials where a page has few of them, which are in `entries`; turned if their
   rows are to be columns. */
function givenCells(given, metric, entries, rows, columns) {
  const decoded = (value) => NUMBERS[value] ?? value;
  const [rowValues, columnValues] = given.values.map((values) => values.map(decoded));
  const [members, figures] = [membersOf(entries, rows, columns), given.metrics[metric]];
  const isTurned = given.rows !== rows.name;
  const [down, across] = isTurned ? [columnValues, rowValues] : [rowValues, columnValues];
  const cells = [];
  const marked = { trials: new Set(), alike: new Set() };
  for (const [rowIndex, row] of down.entries()) {
    for (const [columnIndex, column] of across.entries()) {
      const index = isTurned ? columnIndex * columnValues.length + rowIndex : rowIndex * columnValues.length + columnIndex;
      for (const [kind, places] of Object.entries(marked)) if (figures[kind].includes(index)) places.add(cells.length);
      const own = Object.fromEntries(["mean", "std", "half", "iqm", "n", "count", "missing"].map((name) => [name, decoded(figures[name][index]) ?? NaN]));
      cells.push({ row, column, trials: members.get(`${row}\n${column}`) ?? [], ...own });
    }
  }
  return { rowValues: down, columnValues: across, cells, frames: marked.trials, alike: marked.alike };
}

/* One cell for every pair of values of two axes. Null is a value, too. */
function pivot(entries, metric, rows, columns, replicateOf, halves) {
  const rowValues = rows.sorted(entries.map(rows.at));
  const columnValues = columns.sorted(entries.map(columns.at));
  const members = membersOf(entries, rows, columns);
  const cells = [];
  for (const row of rowValues) {
    for (const column of columnValues) {
      const trials = members.get(`${row}\n${column}`) ?? [];
      cells.push({ row, column, trials, ...summary(trials, metric, replicateOf, halves) });
    }
  }
  return { rowValues, columnValues, cells };
}

/* Positions of the cells that have these trials. A trial that several labels have counts for the first of them. */
function framed(cells, entries, rows, columns, trials) {
  const places = new Map(cells.map((cell, index) => [`${cell.row}\n${cell.column}`, index]));
  const left = new Set(trials);
  const found = entries.filter((entry) => left.delete(entry.trial));
  return new Set(found.map((entry) => places.get(`${rows.at(entry)}\n${columns.at(entry)}`)));
}

const median = (values) => {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/* The range of the colours, wide enough that differences due to noise look alike. */
function colourRange(cells, bounds) {
  const means = cells.map((cell) => cell.mean).filter(Number.isFinite);
  const [low, high] = means.length ? [Math.min(...means), Math.max(...means)] : [0, 1];
  const errors = cells.filter((cell) => Number.isFinite(cell.std)).map((cell) => cell.std / Math.sqrt(cell.n));
  const smallest = errors.length ? STANDARD_ERRORS * median(errors) : 0;
  if (high - low >= smallest) {
    const margin = (high - low) * 0.02 || Math.abs(high) * 0.01 || 1;
    return { low: low - margin, high: high + margin, widened: false };
  }
  let [from, to] = [(low + high - smallest) / 2, (low + high + smallest) / 2];
  if (bounds && to > bounds[1]) [from, to] = [from - (to - bounds[1]), bounds[1]];
  if (bounds && from < bounds[0]) [from, to] = [bounds[0], Math.min(bounds[1], to + bounds[0] - from)];
  return { low: from, high: to, widened: true };
}
