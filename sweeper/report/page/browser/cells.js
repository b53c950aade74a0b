/* The cells of a heatmap: means over trials, the framed cells and the range of colours, as in the pictures of a sweep. */

const STANDARD_ERRORS = 20;

const SPREADS = { interval: "[95 % interval]", deviation: "\u00b1 standard deviation" };
const MEASURED = ["mean", "std", "low", "high", "iqm", "fixed_std", "replicates", "fixed", "count", "missing"];
const EQUAL = 1e-9; // the largest deviation of values that differ by rounding alone
const MIN_IQM = 5;

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN);

const deviation = (values) => {
  const mean = average(values);
  return values.length > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1)) : NaN;
};

/* The 95 % interval of the mean of n values, of shares on the logit scale; NaN where Python knows none. `halves[n]` is
   half that of n values whose standard deviation is 1, and null below the fewest that have one. */
function meanInterval(mean, std, n, halves, share) {
  const half = std > EQUAL ? std * (halves[n] ?? NaN) : NaN;
  if (!share || !(mean > 0 && mean < 1)) return [mean - half, mean + half];
  const [centre, width] = [Math.log(mean / (1 - mean)), half / (mean * (1 - mean))];
  return [centre - width, centre + width].map((end) => 1 / (1 + Math.exp(-end)));
}

/* Which trials are one replicate, and which have the same fixed values, such as a class, by `Repeats` of `sweep.py`:
   hyperparameters that are on an axis tell cells apart already. With the names of the varying ones. */
function repetition({ drawn, fixed }, columnOf, trials, axes) {
  const within = (names) => names.filter((name) => !axes.includes(name)).map(columnOf).filter(Boolean);
  const values = (column) => new Set(trials.map((trial) => column.at(trial)).filter((value) => value !== null && value !== undefined));
  const own = within(drawn);
  const several = own.filter((column) => column.name !== "seed" && values(column).size > 1);
  const [replicates, strata] = [several.length ? several : own, within(fixed)];
  const key = (columns) => (trial) => columns.map((column) => String(column.at(trial))).join("\n");
  return { replicateOf: key(replicates), fixedOf: key(strata), replicates, strata };
}

/* What the replicates of a cell and its fixed values are, as plural nouns, of which `nouns` has those of hyperparameters.
   `varies` says whether a hyperparameter varies within a cell. */
function nounsOf({ replicates, strata }, nouns, varies) {
  const noun = (columns, other) => {
    const names = columns.map((column) => column.name).filter(varies);
    return names.length === 1 ? nouns?.[names[0]] ?? names[0] : other;
  };
  return { replicates: noun(replicates, "replicates"), fixed: noun(strata, "fixed values") };
}

const groupsOf = (items, keyOf, valueOf) => {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), valueOf(item)]);
  return groups;
};

/* What `replicates.py` says of a cell: over replicates, each of which has the mean over the fixed values. */
function summary(trials, metric, { replicateOf, fixedOf }, halves) {
  const known = trials.filter((trial) => typeof metric.at(trial) === "number" && !Number.isNaN(metric.at(trial)));
  const byRun = groupsOf(known, (trial) => JSON.stringify([fixedOf(trial), replicateOf(trial)]), (trial) => metric.at(trial));
  const runs = [...byRun].map(([key, values]) => [...JSON.parse(key), average(values)]);
  const strata = [...groupsOf(runs, ([fixed]) => fixed, (run) => run[2]).values()].map(average);
  const byReplicate = [...groupsOf(runs, (run) => run[1], (run) => run[2]).values()];
  const whole = byReplicate.filter((values) => values.length === strata.length).map(average);
  const values = whole.length || !strata.length ? whole : [average(strata)];
  const [n, mean, std] = [values.length, average(values), deviation(values)];
  const share = Boolean(metric.bounds) && values.every((value) => value >= 0 && value <= 1);
  const [low, high] = meanInterval(mean, std, n, halves, share);
  const sorted = runs.map((run) => run[2]).sort((left, right) => left - right);
  const cut = Math.floor(sorted.length / 4);
  const iqm = sorted.length >= MIN_IQM ? average(sorted.slice(cut, sorted.length - cut)) : NaN;
  const counts = { replicates: n, fixed: strata.length, count: known.length, missing: trials.length - known.length };
  return { mean, std, low, high, iqm, fixed_std: deviation(strata), ...counts };
}

/* What stands beside the mean of a cell: the ends of its interval, a standard deviation, or nothing. */
function beside(cell, spread) {
  if (spread === "interval" && Number.isFinite(cell.low ?? NaN)) return [cell.low, cell.high];
  const own = spread === "deviation" && Number.isFinite(cell.std ?? NaN) ? cell.std : cell.fixed_std;
  return Number.isFinite(own ?? NaN) ? [own] : [];
}

const besideText = (numbers, text) => (numbers.length === 2 ? ` [${numbers.map((value) => text(value)).join(", ")}]` : numbers.length ? ` \u00b1 ${text(numbers[0])}` : "");

/* What cells show, in words, as `described` of `sentences.py`; empty for one run a cell. */
function described(cells, nouns, spread) {
  const known = cells.filter((cell) => cell.replicates > 0);
  const most = (name) => Math.max(0, ...known.map((cell) => cell[name]));
  if (most("replicates") <= 1 && most("fixed") <= 1) return "";
  const span = (name) => [...new Set([Math.min(...known.map((cell) => cell[name])), most(name)])].join(" to ");
  const has = (cell) => Number.isFinite(spread === "interval" ? cell.low : cell.std);
  const [bySeed, several] = [known.some(has), most("fixed") > 1];
  if (bySeed || !several) {
    const more = known.some((cell) => cell.count > cell.replicates * cell.fixed);
    const each = several ? `${span("fixed")} ${nouns.fixed}` : more ? "several trials" : "";
    const text = `mean${bySeed ? ` ${SPREADS[spread]}` : ""} over ${span("replicates")} ${nouns.replicates}${each ? `, each the mean of ${each}` : ""}`;
    const few = several && known.some((cell) => !has(cell) && Number.isFinite(cell.fixed_std));
    return few ? `${text}; without that ${SPREADS.deviation} over ${nouns.fixed}` : text;
  }
  const kind = known.some((cell) => Number.isFinite(cell.fixed_std)) ? ` ${SPREADS.deviation}` : "";
  return `mean${kind} over ${span("fixed")} ${nouns.fixed}${most("replicates") > 1 ? `, each the mean of ${span("replicates")} ${nouns.replicates}` : ""}`;
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
      const own = Object.fromEntries(MEASURED.map((name) => [name, decoded(figures[name][index]) ?? NaN]));
      cells.push({ row, column, trials: members.get(`${row}\n${column}`) ?? [], ...own });
    }
  }
  return { rowValues: down, columnValues: across, cells, frames: marked.trials, alike: marked.alike };
}

/* One cell for every pair of values of two axes. Null is a value, too. */
function pivot(entries, metric, rows, columns, repeated, halves) {
  const rowValues = rows.sorted(entries.map(rows.at));
  const columnValues = columns.sorted(entries.map(columns.at));
  const members = membersOf(entries, rows, columns);
  const cells = [];
  for (const row of rowValues) {
    for (const column of columnValues) {
      const trials = members.get(`${row}\n${column}`) ?? [];
      cells.push({ row, column, trials, ...summary(trials, metric, repeated, halves) });
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

/* The range of the colours, wide enough that differences due to noise look alike. */
function colourRange(cells, bounds) {
  const means = cells.map((cell) => cell.mean).filter(Number.isFinite);
  const [low, high] = means.length ? [Math.min(...means), Math.max(...means)] : [0, 1];
  const errors = cells.filter((cell) => Number.isFinite(cell.std)).map((cell) => cell.std / Math.sqrt(cell.replicates));
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
