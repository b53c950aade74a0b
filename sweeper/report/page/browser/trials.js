/* Some trials in detail: their learning curves, and of one of them every hyperparameter and metric. */

const MOST_CURVES = 60;

/* Hyperparameters that tell these trials apart, in the order of their preset. */
function varying(report, trials) {
  const vary = report.named("hyperparameter").filter((column) => !column.isConstant && new Set(trials.map((trial) => column.at(trial))).size > 1);
  return report.ordered(report.value("preset", trials[0]), vary);
}

const nameOf = (report, trial, columns) =>
  columns.slice(0, 4).map((column) => `${column.name}=${report.className(column, trial) ?? formatValue(column.at(trial))}`).join(", ") || report.value("trial_id", trial);

class TrialDetails {
  constructor() {
    this.section = new Section("trials", "Trials of the cell", (body) => this.render(body));
    this.element.hidden = true;
    this.box = chartBox();
    this.one = el("div");
  }

  get element() {
    return this.section.element;
  }

  /* `group` has a title, trials of which it is some or all of `count`, and the metric to begin with; null hides the
     section. */
  set(report, group) {
    this.report = report;
    const same = group && this.group && group.title === this.group.title;
    this.group = group;
    this.element.hidden = !group?.trials.length;
    if (this.element.hidden) return;
    const before = same ? group.trials.find((trial) => report.value("trial_id", trial) === this.id) : undefined;
    this.select(before ?? group.trials[0]);
    if (!same) this.metric = report.series.has(group.metric) ? group.metric : [...report.series.keys()][0];
    this.section.seen = true;
    this.section.draw();
  }

  render(body) {
    const { report, group } = this;
    if (!group) return;
    const columns = varying(report, group.trials);
    const metrics = [...report.series.keys()];
    const select = choice("learning curve of", metrics, this.metric, (metric) => {
      this.metric = metric;
      this.curves(columns);
    });
    body.replaceChildren(
      el("p", {}, `${group.title}: ${group.trials.length < group.count ? `${group.trials.length} of ` : ""}${plural(group.count, "trial")}.`),
      el("div", { class: "sides" }, this.list(columns), el("div", {}, metrics.length ? select : null, this.box)),
      this.one,
    );
    this.curves(columns);
    this.detail(columns);
  }

  list(columns) {
    const { report, group } = this;
    const metric = report.columns.get(group.metric);
    const shown = [...columns.slice(0, 5), metric].filter(Boolean);
    const texts = new Map(shown.map((column) => [column, columnWriter(column, group.trials)]));
    const rows = group.trials.slice(0, 500).map((trial) => {
      const name = report.value("trial_id", trial);
      const open = el("button", { type: "button", onclick: () => this.choose(trial, columns) }, name);
      const cells = shown.map((column) => {
        const value = column.at(trial);
        return column.isNumeric ? number(value, report.className(column, trial) ?? texts.get(column)(value)) : el("td", {}, formatValue(value));
      });
      const row = el("tr", { "data-trial": name, "aria-current": String(trial === this.trial) });
      row.append(el("td", {}, open), el("td", {}, report.value("status", trial)), ...cells);
      return row;
    });
    this.rows = rows;
    const cut = group.trials.length > rows.length ? `, the first ${rows.length}` : "";
    return plainTable(`Trials${cut}`, ["trial", "status", ...shown.map((column) => column.label)], rows);
  }

  select(trial) {
    this.trial = trial; // its number, which newer rows change
    this.id = this.report.value("trial_id", trial);
  }

  choose(trial, columns) {
    this.select(trial);
    for (const row of this.rows) row.setAttribute("aria-current", String(row.dataset.trial === this.report.value("trial_id", trial)));
    this.curves(columns);
    this.detail(columns);
  }

  curves(columns) {
    const { report, group, metric } = this;
    const others = group.trials.filter((trial) => trial !== this.trial);
    const shown = [...others.slice(0, MOST_CURVES - 1), this.trial]; // the last one is drawn on top
    const lines = shown.map((trial) => ({ name: nameOf(report, trial, columns), main: trial === this.trial, points: report.curve(metric, trial) }));
    return drawCurves(this.box, lines, report.columns.get(metric) ?? { label: metric });
  }

  detail(columns) {
    const { report, trial } = this;
    const texts = (list) => values(list.map((column) => [column.label, exact(column, column.at(trial), report.className(column, trial))]));
    const known = (kind) => report.named(kind).filter((column) => column.at(trial) !== null);
    const first = new Set(columns);
    const others = known("hyperparameter").filter((column) => !first.has(column));
    const pictures = report.pictures.filter((picture) => picture.trial === report.value("trial_id", trial));
    const log = report.logs.find((each) => each.trial === report.value("trial_id", trial));
    const error = report.value("error", trial);
    this.one.replaceChildren(
      el("h3", {}, `Trial ${report.value("trial_id", trial)}: ${report.value("status", trial)}`),
      ...(error ? [el("p", { class: "note" }, error)] : []),
      el("div", { class: "sides" },
        el("div", {}, el("h3", {}, "Metrics"), texts(known("metric"))),
        el("div", {}, el("h3", {}, "Hyperparameters"), texts([...first]),
          el("details", {}, el("summary", {}, `${others.length} others`), texts(others)),
          el("details", {}, el("summary", {}, "How it ran"), texts(known("run")))),
      ),
      ...(log ? [printed(log)] : []),
      ...pictures.map(figure),
      ...report.reruns.filter((run) => run.trial_id === report.value("trial_id", trial)).map(earlierRun),
    );
  }
}

/* What a trial printed, or the end of it. A page that a server answers has no files beside it. */
function printed(log) {
  const whole = document.body.dataset.live ? null : el("p", {}, el("a", { href: log.path }, "the whole log"));
  const title = log.cut ? "What it printed, the end" : "What it printed";
  return el("details", {}, el("summary", {}, title), scrolling(`log of ${log.trial}`, el("pre", {}, log.text)), whole);
}

/* An earlier run of a trial, which `--fresh` has replaced. */
function earlierRun(run) {
  const rows = run.columns.map((name, index) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, formatValue(run.then[index])), el("td", {}, formatValue(run.now[index]))));
  return plainTable(`What differs from the run replaced at ${run.replaced}`, ["column", "then", "now"], rows);
}

/* A short number, of which `data-value` and the pointer's text have all digits, as the file; or the name that it has. */
function exact(column, value, name) {
  if (typeof value !== "number") return formatValue(value);
  return el("span", { "data-value": String(value), title: String(value) }, name ?? formatCell(column, value));
}

const figure = (picture) =>
  el("figure", {}, el("img", { src: picture.source, width: picture.width, height: picture.height, alt: picture.title, loading: "lazy" }), el("figcaption", {}, picture.title));

/* `lines` have a name, points {epoch, value}, and `main` if they stand out. A metric in percent is drawn so. */
function drawCurves(box, lines, { label, percent = false }) {
  const scale = percent ? 100 : 1;
  const data = lines.flatMap((line, index) => line.points.map((point) => ({ ...point, text: formatMetric(point.value, percent), line: index, name: line.name, main: Boolean(line.main) })));
  if (!data.length) {
    box.vega?.finalize();
    box.vega = null;
    box.dataset.turn = (Number(box.dataset.turn) || 0) + 1;
    box.replaceChildren(el("p", { class: "quiet" }, "There is no curve of this metric."));
    return Promise.resolve(null);
  }
  return chart(box, "curves", {
    description: `${label} over the epochs of ${plural(lines.length, "trial")}`,
    width: widthFor(box, 70, 640),
    points: data.map((point) => ({ ...point, value: Number.isFinite(point.value) ? scale * point.value : null })),
    metric: label,
    opacity: lines.length > 12 ? 0.25 : 0.5,
  });
}
