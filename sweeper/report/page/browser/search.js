/* A search: all of its studies together, and of one the history, parallel coordinates, importances and best trials. A proposal is a list of trials, its
   replicates, and has their means: of one trial unless the search has replicates. */

const MOST_LINES = 400;
const BEST_TRIALS = 10;
const STATUSES = ["finished", "infeasible", "pruned", "diverged", "failed"];

/* The trials of each proposal of a study, by its number. */
function proposalsOf(report, trials) {
  const byNumber = new Map();
  for (const trial of trials) {
    const number = report.value("number", trial);
    byNumber.set(number, [...(byNumber.get(number) ?? []), trial]);
  }
  return [...byNumber.values()];
}

/* A column whose values are those of proposals: what their trials share, else their mean, NaN without one. */
function overTrials(column) {
  if (!column) return column;
  const at = (trials) => {
    const values = trials.map((trial) => column.at(trial));
    if (values.every((value) => value === values[0])) return values[0];
    return column.isNumeric && values.every(Number.isFinite) ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN;
  };
  return Object.create(column, { at: { value: at } });
}

class Search {
  constructor(onTrial) {
    this.onTrial = onTrial;
    this.section = new Section("search", "Search", (body) => this.render(body));
  }

  get element() {
    return this.section.element;
  }

  set(report, request) {
    Object.assign(this, { report, request });
    this.preset = report.presets[request.preset];
    this.element.hidden = !this.preset?.objectives || !report.columns.has("number");
    if (this.element.hidden) return;
    this.all = report.trialsOf(request);
    this.studies = distinct(this.all.map((trial) => report.value("study", trial)).filter((name) => name !== null));
    if (!this.studies.includes(this.study)) this.study = this.studies[0];
    const names = this.preset.objectives.map((objective) => objective.name);
    if (!names.includes(this.objective)) this.objective = names[0];
  }

  draw() {
    this.section.draw();
  }

  render(body) {
    const { report, preset } = this;
    const objective = preset.objectives.find((known) => known.name === this.objective);
    const column = overTrials(report.columns.get(objective.name));
    const change = (key) => (value) => { this[key] = value; this.draw(); };
    const controls = [];
    const several = this.studies.length > 1;
    if (preset.objectives.length > 1) controls.push(choice("objective", preset.objectives.map((known) => known.name), this.objective, change("objective")));
    this.infeasible = new Set(report.inRanges(this.request.infeasible));
    const studies = several ? this.studies.map((name) => this.studyOf(name, column, objective)) : [];
    const { trials, repeats, complete, ranked } = this.studyOf(this.study ?? null, column, objective);
    const [progress, history, parallel, importance, front] = [chartBox(), chartBox(), chartBox(), chartBox(), chartBox()];
    const shares = report.importances.find((known) => known.study === this.study && known.request === this.request.label) ??
      report.importances.find((known) => known.study === this.study);
    const areTwo = preset.objectives.length === 2;
    const every = !report.lacksTrials;
    const proposed = repeats > 1 ? `${plural(trials.length, "proposal")} of ${repeats} trials each` : plural(trials.length, "trial");
    body.replaceChildren(
      ...(controls.length ? [el("div", { class: "controls" }, controls)] : []),
      ...(several && every ? [el("h3", {}, "Best value over trials"), progress] : []),
      ...(several ? [el("h3", {}, "Best trial of each study"), this.bestOfStudies(studies, objective)] : []),
      ...(several ? [el("h3", {}, "One study"), el("div", { class: "controls" }, choice("study", this.studies, this.study, change("study")))] : []),
      el("p", {}, `${every ? `${proposed}, ${complete.length} trained to the end${this.infeasible.size ? ` and met ${this.preset.constraints.join(", ")}` : ""}` : `${proposed} of the study on this page; its history and parallel coordinates need all`}. Objective: ${repeats > 1 ? "mean of " : ""}${column?.label ?? objective.name}, ${objective.direction === "minimize" ? "lower" : "higher"} is better.`),
      el("div", { class: "sides" },
        every ? el("div", {}, el("h3", {}, "History"), history) : null,
        shares ? el("div", {}, el("h3", {}, `Importance (fANOVA, n = ${shares.complete} complete trials)`), importance) : null,
        areTwo && every ? el("div", {}, el("h3", {}, "Objectives against each other"), front) : null),
      ...(every ? [el("h3", {}, "Parallel coordinates"), parallel] : []),
      el("h3", {}, "Best trials"), this.bestTrials(ranked, objective),
    );
    if (!column || !trials.length) return null;
    return Promise.all([
      several && every ? this.progress(progress, studies, column, objective) : null,
      every ? this.history(history, trials, column, objective) : null,
      every ? this.parallel(parallel, ranked, column, objective) : null,
      shares ? this.importance(importance, shares, objective) : null,
      areTwo && every ? this.front(front, complete) : null,
    ]);
  }

  /* The proposals of a study, of these the complete ones, and these best first. */
  studyOf(name, column, objective) {
    const { report } = this;
    const trials = proposalsOf(report, this.all.filter((trial) => (report.value("study", trial) ?? null) === name));
    const repeats = Math.max(1, ...trials.map((own) => own.length));
    const complete = trials.filter((own) => own.length === repeats && this.status(own) === "finished" && Number.isFinite(column?.at(own)));
    const sign = objective.direction === "minimize" ? 1 : -1;
    const ranked = [...complete].sort((left, right) => sign * (column.at(left) - column.at(right)));
    return { name, trials, repeats, complete, ranked };
  }

  status(trials) {
    const statusOf = (trial) => (this.infeasible.has(trial) ? "infeasible" : this.report.value("status", trial));
    return [...STATUSES].reverse().find((status) => trials.some((trial) => statusOf(trial) === status));
  }

  parameters(trials) {
    const { report, preset } = this;
    return preset.parameters.map((known) => ({ ...known, column: overTrials(report.columns.get(known.name)) })).filter(({ column }) => column && trials.some((trial) => column.at(trial) !== null));
  }

  /* The objectives, and the chosen one on test images. */
  metricsOf(objective) {
    const { report, preset } = this;
    const plain = report.columns.get(objective.name.replace(/^val_/, ""));
    const metrics = preset.objectives.map((known) => report.columns.get(known.name)).filter(Boolean);
    return plain && !metrics.includes(plain) ? [...metrics, plain] : metrics;
  }

  buttons(trials) {
    return el("td", {}, trials.map((trial) => el("button", { type: "button", onclick: () => this.onTrial(trial) }, this.report.value("trial_id", trial))));
  }

  /* The cells of proposals in these columns, `cell(column, trials)`; of metrics with the interval over replicates. And what they show, in words. */
  proposalCells(columns, proposals, objective) {
    const { report, preset } = this;
    const metrics = this.metricsOf(objective);
    const repeated = repetition(preset.repeats, (name) => report.columns.get(name), proposals.flat(), []);
    const of = (trials, metric) => summary(trials, metric, repeated, report.halves);
    const ends = (column, trials) => {
      const metric = metrics.find((known) => known.name === column.name);
      return metric && !Number.isNaN(column.at(trials)) ? beside(of(trials, metric), "interval") : [];
    };
    const numbers = (column) => proposals.flatMap((trials) => [column.at(trials), ...ends(column, trials)]);
    const texts = new Map(columns.map((column) => [column, column.isNumeric ? columnText(numbers(column), column.percent) : formatValue]));
    const cell = (column, trials) => {
      const text = texts.get(column);
      return number(column.at(trials), `${text(column.at(trials))}${besideText(ends(column, trials), text)}`);
    };
    const varies = (name) => proposals.some((trials) => trials.some((trial) => report.value(name, trial) !== report.value(name, trials[0])));
    const cells = proposals.map((trials) => of(trials, report.columns.get(objective.name)));
    const shown = described(cells, nounsOf(repeated, preset.nouns, varies), "interval");
    return { cell, means: shown ? `: ${shown}` : "" };
  }

  bestTrials(ranked, objective) {
    const shown = ranked.slice(0, BEST_TRIALS);
    const metrics = [this.report.columns.get("number"), ...this.metricsOf(objective)].map(overTrials);
    const columns = [...metrics, ...this.parameters(ranked).map(({ column }) => column)];
    const { cell, means } = this.proposalCells(columns, shown, objective);
    const rows = shown.map((trials) => el("tr", {}, this.buttons(trials), columns.map((column) => cell(column, trials))));
    return plainTable(`The ${rows.length} best by ${objective.name}${means}`, ["trial", ...columns.map((column) => column.label)], rows);
  }

  /* A row for each study, that with the best trial first; those without a complete trial are last. */
  bestOfStudies(studies, objective) {
    const sign = objective.direction === "minimize" ? 1 : -1;
    const column = overTrials(this.report.columns.get(objective.name));
    const value = ({ ranked }) => (ranked.length ? sign * column.at(ranked[0]) : Infinity);
    const ordered = [...studies].sort((left, right) => compare(value(left), value(right)));
    const columns = this.metricsOf(objective).map(overTrials);
    const { cell, means } = this.proposalCells(columns, ordered.flatMap(({ ranked }) => ranked.slice(0, 1)), objective);
    const rows = ordered.map(({ name, trials, complete, ranked: [best] }) => el("tr", {},
      el("th", { scope: "row" }, name),
      columns.map((each) => (best ? cell(each, best) : el("td", { class: "number" }, DASH))),
      el("td", { class: "number" }, `${complete.length} of ${trials.length}`),
      best ? this.buttons(best) : el("td", {}, DASH),
      el("td", { class: "long" }, best ? this.parameters([best]).map((known) => `${known.name}=${formatCell(known.column, known.column.at(best))}`).join(" ") : DASH)));
    return plainTable(`The best trial of each study by ${objective.name}${means}`, ["study", ...columns.map((each) => each.label), "complete", "trial", "setting"], rows);
  }

  /* The proposals of a study in their order, each with its value and the best so far; null where there is none. */
  course(trials, column, objective) {
    const scale = column.percent ? 100 : 1;
    const numbered = (own) => this.report.value("number", own[0]);
    const ordered = [...trials].sort((left, right) => numbered(left) - numbered(right));
    let reached = null;
    return ordered.map((own) => {
      const [status, value] = [this.status(own), column.at(own)];
      const finite = Number.isFinite(value);
      const improves = finite && status === "finished" && (reached === null || (objective.direction === "minimize" ? value < reached : value > reached));
      if (improves) reached = value;
      return { number: numbered(own), value: finite ? scale * value : null, text: formatMetric(value, column.percent), best: reached === null ? null : scale * reached, status, improves };
    });
  }

  /* The best value so far of every study, in one chart. */
  progress(box, studies, column, objective) {
    const isNarrow = box.clientWidth < 560;
    const longest = Math.max(...studies.map(({ name }) => name.length));
    return chart(box, "progress", {
      description: `The best ${column.label} so far of each of ${studies.length} studies over its trials`,
      width: widthFor(box, isNarrow ? 70 : 130 + Math.min(200, 6.4 * longest), 760),
      points: studies.flatMap(({ name, trials }) => this.course(trials, column, objective).filter(({ best }) => best !== null).map((point) => ({ ...point, study: name }))),
      metric: column.label,
      studies: studies.map(({ name }) => name),
      legend: { orient: isNarrow ? "bottom" : "right", columns: isNarrow ? 2 : 1, labelLimit: 200, symbolLimit: 40 },
    });
  }

  history(box, trials, column, objective) {
    const data = this.course(trials, column, objective);
    return chart(box, "history", {
      description: `${column.label} of each trial of the study, and the best so far`,
      width: widthFor(box, 70, 560),
      trials: data,
      metric: column.label,
      statuses: STATUSES.filter((status) => data.some((point) => point.status === status)),
    }, { many: data.length > 1000 });
  }

  importance(box, shares, objective) {
    const indices = shares.objective.map((name, index) => [name, index]).filter(([name]) => name === objective.name);
    return chart(box, "importance", {
      description: `Importance of each hyperparameter for ${objective.name}`,
      width: widthFor(box, 150, 420),
      shares: indices.map(([, index]) => ({ parameter: shares.parameter[index], share: shares.share[index] })),
      most: 1.15 * Math.max(0, ...indices.map(([, index]) => shares.share[index])),
      axis: `share of the variance of ${objective.name}`,
    });
  }

  front(box, complete) {
    const objectives = this.preset.objectives;
    const [first, second] = objectives.map((known) => overTrials(this.report.columns.get(known.name)));
    const scaled = (column, trial) => (column.percent ? 100 * column.at(trial) : column.at(trial));
    const text = (column, trial) => formatMetric(column.at(trial), column.percent);
    const costs = complete.map((trial) => [first, second].map((column, index) => (objectives[index].direction === "minimize" ? 1 : -1) * column.at(trial)));
    const isBeaten = ([a, b]) => costs.some(([other, another]) => other <= a && another <= b && (other < a || another < b));
    return chart(box, "front", {
      description: `${first.name} against ${second.name}`,
      width: widthFor(box, 90, 480),
      trials: complete.map((trial, index) => ({
        x: scaled(first, trial), y: scaled(second, trial), first: text(first, trial), second: text(second, trial),
        trial: this.report.value("trial_id", trial[0]), front: !isBeaten(costs[index]),
      })),
      first: first.label,
      second: second.label,
    });
  }

  /* One line a trial; of many the best and the worst are drawn, which is said. */
  parallel(box, ranked, column, objective) {
    const shown = ranked.length <= MOST_LINES ? ranked : [...ranked.slice(0, MOST_LINES / 2), ...ranked.slice(-MOST_LINES / 2)];
    const axes = [...this.parameters(shown).map(({ name, log, column: own }) => axisScale(name, own, shown, log)), axisScale(column.label, column, shown, false)];
    const data = [...shown].reverse().flatMap((trial) => axes.map((axis, order) => ({
      trial: trial[0],
      order,
      axis: axis.name,
      place: axis.place(trial),
      objective: column.percent ? 100 * column.at(trial) : column.at(trial),
      text: formatMetric(column.at(trial), column.percent),
      words: `${axis.name}=${formatCell(axis.column, axis.column.at(trial))}`,
    }))).filter((point) => point.place !== null);
    const ends = axes.flatMap((axis) => axis.ticks.map(([place, text]) => ({ axis: axis.name, place, text })));
    const cut = shown.length < ranked.length ? `the ${MOST_LINES / 2} best and the ${MOST_LINES / 2} worst of ${ranked.length} trials` : null;
    const { weak, strong } = COLOURS[scheme()];
    return chart(box, "parallel", {
      description: `Parallel coordinates of ${plural(shown.length, "trial")}: each hyperparameter and ${column.label}`,
      title: cut,
      width: Math.max(widthFor(box, 150, 1000), 90 * axes.length),
      axes: axes.map((axis) => axis.name),
      lines: data,
      ends,
      metric: column.label,
      shades: objective.direction === "minimize" ? [strong, weak] : [weak, strong],
      thickness: shown.length > 100 ? 0.8 : 1.4,
    });
  }
}

/* The place of each trial on one axis, in [0, 1], and the texts at its ends or at its choices. */
function axisScale(name, column, trials, log) {
  const known = trials.map((trial) => column.at(trial)).filter((value) => value !== null);
  const numeric = known.every((value) => typeof value === "number" && Number.isFinite(value));
  if (!numeric) {
    const choices = distinct(known);
    const place = (value) => (choices.length > 1 ? choices.indexOf(value) / (choices.length - 1) : 0.5);
    return { name, column, place: (trial) => (column.at(trial) === null ? null : place(column.at(trial))), ticks: choices.slice(0, 12).map((value) => [place(value), formatValue(value)]) };
  }
  const turned = (value) => (log && value > 0 ? Math.log(value) : value);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const span = turned(high) - turned(low);
  const place = (value) => (span ? (turned(value) - turned(low)) / span : 0.5);
  const show = (value) => formatMetric(value, column.percent, 3);
  const middle = log && low > 0 ? Math.sqrt(low * high) : (low + high) / 2;
  return { name, column, place: (trial) => (column.at(trial) === null ? null : place(column.at(trial))), ticks: low === high ? [[0.5, show(low)]] : [[0, show(low)], [0.5, show(middle)], [1, show(high)]] };
}
