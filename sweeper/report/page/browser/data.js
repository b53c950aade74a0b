"use strict";
/* The rows and the curves, as they are embedded in the page. */

const bytesOf = (base64) => {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
  return bytes;
};

const inflated = (base64) =>
  new Response(new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("gzip")));

const embedded = (id) => document.getElementById(id).textContent;

/* What a request to the server of `sweeper view` must have: the token of its link, which the tab keeps. */
const authorization = () => ({ Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` });

const NUMBERS = { inf: Infinity, "-inf": -Infinity };

class Column {
  constructor({ name, kind, values, constant, direction, percent, bounds }) {
    Object.assign(this, { name, kind, direction, percent, bounds });
    this.isConstant = values === undefined;
    this.constant = this.isConstant ? this.decoded(constant) : undefined;
    this.values = this.isConstant ? null : values.map((value) => this.decoded(value));
    const known = this.isConstant ? [this.constant] : this.values;
    this.isEmpty = known.every((value) => value === null);
    this.isNumeric = known.some((value) => typeof value === "number") && !known.some((value) => typeof value === "string");
  }

  /* Infinity is text in JSON. It cannot be confused with a name: only columns without other texts have it. */
  decoded(value) {
    return typeof value === "string" && this.kind !== "run" && Object.hasOwn(NUMBERS, value) ? NUMBERS[value] : value;
  }

  at(trial) {
    return this.isConstant ? this.constant : this.values[trial];
  }

  get label() {
    return this.percent ? `${this.name} (%)` : this.name;
  }
}

class Report {
  constructor(raw, curves) {
    Object.assign(this, raw);
    this.columns = new Map(raw.columns.map((column) => [column.name, new Column(column)]));
    this.series = new Map(raw.curves.map((series) => [series.metric, series]));
    this.curveValues = curves;
    this.positions = new Map(); // metric -> trial -> its row in the matrix of the metric
  }

  /* Whether a page lacks trials of the sweep, which the server has. */
  get lacksTrials() {
    return this.left_out !== null;
  }

  static async read(report, curves) {
    const [raw, bytes] = await Promise.all([inflated(report).json(), inflated(curves).arrayBuffer()]);
    return new Report(raw, new Float64Array(bytes));
  }

  value(name, trial) {
    const column = this.columns.get(name);
    return column ? column.at(trial) : null;
  }

  /* The name of the class in a column of classes, if the images of the trial are the user's own. */
  className(column, trial) {
    return column.name === "normal_class" ? this.classes[this.value("image_digest", trial)]?.[column.at(trial)] : undefined;
  }

  /* How values of hyperparameters of these trials are written: (name, value) to text, with names for classes if all of
     the trials have the same images. */
  writer(trials) {
    const digests = new Set(trials.map((trial) => this.value("image_digest", trial)));
    const names = digests.size === 1 ? this.classes[[...digests][0]] : undefined;
    return (name, value) => (name === "normal_class" && names?.[value]) || formatValue(value);
  }

  named(kind) {
    return [...this.columns.values()].filter((column) => column.kind === kind);
  }

  /* The columns in the order of a preset: the axes of its definition, the method, those that a request alone varies, and
     the seed. */
  ordered(preset, columns) {
    const defined = this.presets[preset]?.axes ?? [];
    const rank = ({ name }) => (name === "seed" ? 2e6 : defined.includes(name) ? defined.indexOf(name) : name === "method" ? 1e6 - 1 : 1e6);
    return [...columns].sort((left, right) => rank(left) - rank(right));
  }

  /* The trials of a request, as numbers, of which it has ranges. */
  trialsOf(request) {
    return this.inRanges(request.trials);
  }

  inRanges(ranges) {
    return ranges.flatMap(([first, count]) => Array.from({ length: count }, (_, index) => first + index));
  }

  /* What is said of the best settings by a metric, and their trials, of which it has none where nothing is best. The
     setting is the same for a metric and for the same one on validation images. */
  bestOf(request, metric) {
    const plain = metric?.replace(/^val_/, "");
    return request.best[plain] ?? request.best[`val_${plain}`] ?? { text: [], trials: [], alike: [] };
  }

  /* [{epoch, value}] of a trial, without the epochs at which it has no value. */
  curve(metric, trial) {
    const series = this.series.get(metric);
    if (!series) return [];
    if (!this.positions.has(metric)) {
      this.positions.set(metric, new Map(series.trials.map((number, position) => [number, position])));
    }
    const position = this.positions.get(metric).get(trial);
    if (position === undefined) return [];
    const start = series.offset + position * series.epochs.length;
    return series.epochs
      .map((epoch, index) => ({ epoch, value: this.curveValues[start + index] }))
      .filter((point) => !Number.isNaN(point.value));
  }
}
