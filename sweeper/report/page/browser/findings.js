/* The sample grids, the trials that have not ended, and how the trials ran. */

class Findings {
  constructor() {
    this.grids = new Section("sheets", "Sample grids", (body) => this.renderSampleGrids(body));
    this.training = new Section("training", "Trials that have not ended", (body) => this.renderTraining(body));
    this.runs = new Section("runs", "How it ran", (body) => this.renderRuns(body));
  }

  set(report, request) {
    Object.assign(this, { report, request });
    this.shared = report.pictures.filter((picture) => picture.trial === null);
    this.grids.element.hidden = !this.shared.length;
    this.training.element.hidden = !report.unfinished.length;
    this.runs.element.hidden = !request.count;
  }

  renderSampleGrids(body) {
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
    const { course, count } = this.request;
    const texts = { seconds: "training time of all trials (s)", device_seconds: "device time (s)", cost: "cost" };
    const totals = course.sums.map(([name, total, known]) =>
      [`${texts[name]}${known < count ? `, of ${known} trials` : ""}`, el("span", { "data-value": String(total) }, formatMetric(total))]);
    const moment = (text) => (text ? `${text.slice(0, 19).replace("T", " ")} UTC` : DASH);
    const pairs = [...totals, ["first start", moment(course.started)], ["last end", moment(course.ended)]];
    const rows = course.counts.flatMap(([name, counts]) => counts.map(([value, trials]) =>
      el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, formatValue(value)), number(trials, String(trials)))));
    body.replaceChildren(values(pairs), el("h3", {}, "Trials by where and how they ran"), plainTable("Number of trials", ["column", "value", "trials"], rows));
  }
}
