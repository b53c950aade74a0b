/* The paper's tables, the trajectories, the sheets, the trials that have not ended, and how the trials ran. */

/* mean ± spread, with the interquartile mean, the number of trials, the paper's figure and the difference from it. */
function figureCell(cells, index, metric, spread) {
  const [mean, std, high, iqm, count, missing] = ["mean", "std", "high", "iqm", "count", "missing"].map((name) => cells[name][index]);
  const [published, difference] = [cells.published[index], cells.difference[index]];
  const show = (value, digits = 4) => formatMetric(value, metric.percent, digits);
  const half = high === null ? null : high - mean;
  const beside = spread === "interval" ? half : std;
  const text = count ? `${show(mean)}${beside === null ? "" : ` ± ${show(beside, 2)}`}` : DASH;
  const below = iqm === null ? [] : [`IQM ${show(iqm)}`];
  if (published !== null) {
    const sign = difference > 0 ? "+" : "";
    below.push(`paper ${show(published)}${difference === null ? "" : ` (${sign}${show(difference, 2)})`}`);
  }
  if (count && missing) below.push(`${count} of ${count + missing} trials`);
  const cell = number(mean, text);
  cell.append(...below.map((line) => el("small", {}, line)));
  return cell;
}

function paperTable({ name, captions, rows, columns, metrics, cells }, write, spread) {
  const count = cells.metric.length;
  const keyOf = (index) => rows.map((key) => String(cells[key][index])).join("\n");
  const places = new Map();
  for (let index = 0; index < count; index += 1) {
    const key = keyOf(index);
    if (!places.has(key)) places.set(key, new Map());
    places.get(key).set(`${columns ? String(cells[columns][index]) : ""}\n${cells.metric[index]}`, index);
  }
  const across = columns ? [...new Set(cells[columns].map(String))] : [""];
  const texts = new Map(columns ? cells[columns].map((value) => [String(value), write(columns, NUMBERS[value] ?? value)]) : []);
  const heads = across.flatMap((value) => metrics.map((metric) => {
    const label = metric.percent ? `${metric.name} (%)` : metric.name;
    return columns ? `${columns}=${texts.get(value)}: ${label}` : label;
  }));
  const body = [...places.values()].map((row) => {
    const first = row.values().next().value;
    const keys = rows.map((key) => el("th", { scope: "row" }, write(key, NUMBERS[cells[key][first]] ?? cells[key][first])));
    const figures = across.flatMap((value) => metrics.map((metric) => {
      const index = row.get(`${value}\n${metric.name}`);
      return index === undefined ? el("td", {}, DASH) : figureCell(cells, index, metric, spread);
    }));
    return el("tr", {}, keys, figures);
  });
  return el("div", {}, el("h3", {}, name.replaceAll("_", " ")), plainTable(captions[spread], [...rows, ...heads], body, name));
}

/* The rows of a table that is given by column. */
const rowsOf = (columns) => {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, index) => Object.fromEntries(names.map((name) => [name, columns[name][index]])));
};

/* A metric over the epochs. Beside the panel are bars and the names of lines, or a legend, which is below where it is narrow. */
function trajectory(box, panel) {
  const isNarrow = box.clientWidth < 560;
  const beside = panel.legend ? panel.legend.offset : panel.gutter;
  const longest = 6.6 * Math.max(0, ...panel.lines.map((line) => line.length));
  const legend = panel.legend && { ...panel.legend, ...(isNarrow ? { orient: "bottom", columns: 2, offset: 10 } : {}) };
  const width = widthFor(box, 60 + beside + (panel.legend && isNarrow ? 0 : longest + 20), panel.width);
  return chart(box, "trajectory", { ...panel, points: rowsOf(panel.points), legend, width });
}

class Findings {
  /* `spread` says what stands beside means. */
  constructor({ spread }) {
    this.spread = spread;
    this.tables = new Section("tables", "Tables", (body) => this.renderTables(body));
    this.trajectories = new Section("trajectories", "Trajectories", (body) => this.renderTrajectories(body));
    this.sheets = new Section("sheets", "Sheets", (body) => this.renderSheets(body));
    this.training = new Section("training", "Trials that have not ended", (body) => this.renderTraining(body));
    this.runs = new Section("runs", "How it ran", (body) => this.renderRuns(body));
    this.sections = [this.tables, this.trajectories, this.sheets, this.training, this.runs];
  }

  set(report, request) {
    Object.assign(this, { report, request, trials: report.trialsOf(request) });
    this.write = report.writer(this.trials);
    this.shared = report.pictures.filter((picture) => picture.trial === null);
    this.tables.element.hidden = !request.tables.length;
    this.trajectories.element.hidden = !request.trajectories.some((view) => view.panels.length);
    this.sheets.element.hidden = !this.shared.length;
    this.training.element.hidden = !report.unfinished.length;
    this.runs.element.hidden = !this.trials.length;
  }

  draw() {
    for (const section of this.sections) section.draw();
  }

  /* Metrics of a view in the unit that they have on the whole page. */
  inUnit(metrics) {
    return metrics.map((metric) => ({ ...metric, percent: this.report.columns.get(metric.name)?.percent ?? metric.percent }));
  }

  renderTables(body) {
    body.replaceChildren(...this.request.tables.flatMap((table) => paperTable({ ...table, metrics: this.inUnit(table.metrics) }, this.write, this.spread())));
  }

  renderTrajectories(body) {
    const shown = this.request.trajectories.filter((view) => view.panels.length);
    const boxes = shown.flatMap((view) => view.panels.map((panel) => [chartBox(), panel]));
    const parts = shown.map((view) => el("div", {},
      el("h3", {}, view.name.replaceAll("_", " ")), el("p", { class: "quiet" }, view.caption),
      el("div", { class: "abreast" }, boxes.filter(([, panel]) => view.panels.includes(panel)).map(([box]) => box))));
    body.replaceChildren(...parts);
    return Promise.all(boxes.map(([box, panel]) => trajectory(box, panel)));
  }

  renderSheets(body) {
    body.replaceChildren(...this.shared.map(figure));
  }

  /* Trials that have reported, but have no result: they are training, or were cut off. */
  renderTraining(body) {
    const { report } = this;
    const metrics = [...report.series.values()].filter((series) => series.trials.at(-1) >= report.count).map((series) => series.metric);
    if (!metrics.includes(this.metric)) this.metric = metrics[0];
    const lines = report.unfinished.map((trial, index) => ({
      name: Object.entries(trial.config).map(([key, value]) => `${key}=${formatValue(value)}`).join(", ") || trial.trial_id,
      points: report.curve(this.metric, report.count + index),
    }));
    const epochs = lines.map((line) => line.points.at(-1)?.epoch ?? 0);
    const box = chartBox();
    const select = choice("learning curve of", metrics, this.metric, (metric) => { this.metric = metric; this.training.draw(); });
    body.replaceChildren(
      el("p", {}, `${plural(lines.length, "trial")} reported and not ended: training now, or cut off. Last epoch ${Math.max(0, ...epochs)}.`),
      select,
      box,
    );
    return drawCurves(box, lines.slice(0, MOST_CURVES), report.columns.get(this.metric) ?? { label: this.metric });
  }

  renderRuns(body) {
    const { report, trials } = this;
    const times = (name) => trials.map((trial) => report.value(name, trial)).filter(Boolean).sort();
    const totals = Object.entries({ seconds: "training time of all trials (s)", device_seconds: "device time (s)", cost: "cost" }).flatMap(([name, text]) => {
      const known = trials.map((trial) => report.value(name, trial)).filter((value) => typeof value === "number");
      const total = known.reduce((sum, value) => sum + value, 0);
      return known.length ? [[`${text}${known.length < trials.length ? `, of ${known.length} trials` : ""}`, el("span", { "data-value": String(total) }, formatMetric(total))]] : [];
    });
    const first = times("started")[0];
    const last = times("ended").at(-1);
    const moment = (text) => (text ? `${text.slice(0, 19).replace("T", " ")} UTC` : DASH);
    const pairs = [...totals, ["first start", moment(first)], ["last end", moment(last)]];
    const groups = ["code_version", "device", "host", "status", ...this.others()].filter((name) => report.columns.has(name) && !report.columns.get(name).isEmpty);
    const rows = groups.flatMap((name) => {
      const counts = new Map();
      for (const trial of trials) counts.set(report.value(name, trial), (counts.get(report.value(name, trial)) ?? 0) + 1);
      return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([value, count]) =>
        el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, formatValue(value)), number(count, String(count))));
    });
    body.replaceChildren(values(pairs), el("h3", {}, "Trials by where and how they ran"), plainTable("Number of trials", ["column", "value", "trials"], rows));
  }

  /* Further texts that rows record of a run, such as the environment. */
  others() {
    const known = new Set(["trial_id", "preset", "changes", "status", "error", "cohort", "code_version", "device", "host", "started", "ended"]);
    return this.report.named("run").filter((column) => !known.has(column.name) && !column.isNumeric && !column.isEmpty).map((column) => column.name);
  }
}
