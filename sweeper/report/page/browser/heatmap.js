/* A metric over two hyperparameters or labels; a cell, chosen by a click or by keyboard, shows its trials. */

const ALIKE = "\u00b0"; // the mark of a cell with a setting that is not told apart from the best one

const measured = (report, trials) =>
  report.named("metric").filter((column) => trials.some((trial) => typeof column.at(trial) === "number"));

class Heatmap {
  /* `pick` gets the trials of a cell that the user picks, `draw` those of the chosen cell at every drawing, or null;
     `spread` says what stands beside means. */
  constructor({ pick, draw, spread }) {
    this.onPick = pick;
    this.spread = spread;
    this.onDraw = draw;
    this.chosen = null; // {row, column} as texts, which outlive new rows
    this.section = new Section("heatmap", "Heatmap", (body) => this.render(body));
    this.options = el("div", { class: "controls" });
    this.box = chartBox();
    this.captions = el("div");
    this.cellTitle = el("p", { class: "status", role: "status" });
  }

  /* The request's rows are new: keep what was chosen where it still exists. */
  set(report, request) {
    this.report = report;
    this.request = request;
    this.trials = report.trialsOf(request).filter((trial) => report.value("status", trial) !== "pruned");
    this.text = report.writer(this.trials);
    this.given = report.lacksTrials ? request.cells : null;
    this.axes = this.given ? [] : axesOf(report, request, this.trials);
    this.metrics = this.given ? this.givenMetrics() : measured(report, this.trials);
    const defined = report.presets[request.preset]?.heatmaps ?? [];
    this.heatmaps = defined.filter((heatmap) => (this.given ? this.givenFor(heatmap.rows, heatmap.columns) : entriesOf(report, this.trials, heatmap.selections).length));
    if (!this.metrics.some((metric) => metric.name === this.metric)) this.choose(this.heatmaps[0] ?? {});
    if (!this.isAxis(this.rows) || !this.isAxis(this.columns) || this.preset !== request.preset) this.defaultAxes();
    this.preset = request.preset;
    this.fixed = Object.fromEntries(Object.entries(this.fixed ?? {}).filter(([name]) => this.axes.some((axis) => axis.name === name)));
    this.element.hidden = !this.exists;
  }

  get element() {
    return this.section.element;
  }

  get exists() {
    return this.metrics.length > 0 && this.names().length > 0 && (this.heatmaps.length > 0 || !this.report.presets[this.request.preset]?.parameters);
  }

  /* The cells over two axes where they are given; undefined if there are none. */
  givenFor(rows, columns) {
    return this.given.find((known) => [known.rows, known.columns].includes(rows) && [known.rows, known.columns].includes(columns) && rows !== columns);
  }

  givenMetrics() {
    return [...new Set(this.given.flatMap((known) => Object.keys(known.metrics)))].map((name) => this.report.columns.get(name));
  }

  choose({ metric, rows, columns }) {
    const known = (name) => this.metrics.some((column) => column.name === name);
    const headline = this.report.presets[this.request.preset]?.headline;
    this.metric = [metric, headline, this.metrics[0]?.name].find(known);
    Object.assign(this, { rows, columns, anchor: "rows" });
  }

  /* The heatmap whose labels are on an axis; null if hyperparameters are on both. Of several, that of the metric, and of
     the axis that was chosen last. */
  labelling() {
    const [first, second] = this.anchor === "columns" ? [this.columns, this.rows] : [this.rows, this.columns];
    const ordered = [...this.heatmaps].sort((left, right) => (right.metric === this.metric) - (left.metric === this.metric));
    const having = (name) => ordered.filter((heatmap) => labelsOf(heatmap).includes(name));
    const candidates = having(first).length ? having(first) : having(second);
    return candidates.find((heatmap) => labelsOf(heatmap).includes(second)) ?? candidates[0] ?? null;
  }

  /* One axis was chosen: if it has labels with which the other one does not go, choose another for that. */
  fit(key) {
    this.anchor = key;
    const other = key === "rows" ? "columns" : "rows";
    if (this.given) {
      if (!this.givenFor(this.rows, this.columns)) this[other] = this.names().find((name) => this.givenFor(this[key], name));
      return;
    }
    if (this[other] === "method" || this.isAxis(this[other])) return;
    this[other] = this.names().find((name) => name !== this[key] && this.isAxis(name)) ?? "method";
  }

  /* All that can be on an axis. */
  names() {
    if (this.given) return [...new Set(this.given.flatMap((known) => [known.rows, known.columns]))];
    return [...new Set([...this.heatmaps.flatMap(labelsOf), ...this.axes.map((axis) => axis.name)])];
  }

  /* Whether this can be on an axis, given what is on the other one. */
  isAxis(name) {
    if (this.given) return this.names().includes(name);
    return labelsOf(this.labelling()).includes(name) || this.axes.some((axis) => axis.name === name);
  }

  axis(name) {
    const heatmap = this.labelling();
    return labelsOf(heatmap).includes(name) ? labelAxis(name, heatmap.selections) : hyperparameterAxis(this.column(name));
  }

  entries(trials) {
    return entriesOf(this.report, trials, this.labelling()?.selections ?? []);
  }

  defaultAxes() {
    const heatmap = this.heatmaps.find((known) => known.metric === this.metric) ?? this.heatmaps[0];
    Object.assign(this, { rows: heatmap?.rows, columns: heatmap?.columns, anchor: "rows" });
    if (this.given) {
      if (!heatmap) Object.assign(this, { rows: this.given[0]?.rows, columns: this.given[0]?.columns });
      return;
    }
    const wanted = [this.rows, this.columns].map((name) => (this.isAxis(name) ? name : null));
    const others = this.names().filter((name) => this.isAxis(name) && !wanted.includes(name));
    this.rows = wanted[0] ?? (others.length + Boolean(wanted[1]) > 1 ? others.shift() : "method");
    this.columns = wanted[1] ?? this.fullest(others);
    if (this.columns === undefined) [this.rows, this.columns] = ["method", this.rows]; // a single axis
  }

  /* The first name of the preset's definition, else the one that leaves the fewest cells without trials if it is on the
     horizontal axis. */
  fullest(names) {
    const defined = names.find((name) => name !== "seed" && this.report.presets[this.request.preset]?.axes.includes(name));
    if (defined) return defined;
    const entries = this.entries(this.trials);
    const filled = (name) => {
      const { cells } = this.pivot(entries, this.column(this.metric), this.axis(this.rows), this.axis(name));
      return cells.filter((cell) => cell.trials.length).length / cells.length;
    };
    return [...names].sort((left, right) => filled(right) - filled(left))[0];
  }

  column(name) {
    return this.report.columns.get(name);
  }

  /* What the trials within a cell repeat. */
  repeated(rows, columns, trials) {
    const repeats = this.report.presets[this.request.preset]?.repeats ?? this.report.repeats;
    return repetition(repeats, (name) => this.column(name), trials, [rows.name, columns.name]);
  }

  /* What the replicates of a cell and its fixed values are, as plural nouns. */
  nouns() {
    if (this.given) return this.givenFor(this.rows, this.columns).over;
    const varying = this.remaining().map((axis) => axis.name);
    const repeated = this.repeated(this.axis(this.rows), this.axis(this.columns), this.trials);
    return nounsOf(repeated, this.report.presets[this.request.preset]?.nouns, (name) => varying.includes(name));
  }

  /* The cells of a metric over the chosen axes, with the framed and the marked ones, for the trials that are left. */
  grid(metric) {
    const [entries, rows, columns] = [this.entries(this.selected()), this.axis(this.rows), this.axis(this.columns)];
    if (this.given) return givenCells(this.givenFor(this.rows, this.columns), metric.name, entries, rows, columns);
    const grid = this.pivot(entries, metric, rows, columns);
    const best = this.best();
    const frames = framed(grid.cells, entries, rows, columns, best.trials);
    const alike = framed(grid.cells, entries, rows, columns, this.report.inRanges(best.alike));
    return { ...grid, frames, alike };
  }

  /* What is said of the best settings: of the trials that a heatmap with labels shows, else of all. */
  best() {
    const names = [[this.rows, this.columns], [this.columns, this.rows]].map((axes) => [this.metric, ...axes].join("\n"));
    return this.request.best[names.find((name) => name in this.request.best)] ?? this.report.bestOf(this.request, this.metric);
  }

  pivot(entries, metric, rows, columns) {
    return pivot(entries, metric, rows, columns, this.repeated(rows, columns, entries.map((entry) => entry.trial)), this.report.halves);
  }

  draw() {
    this.section.draw();
  }

  render(body) {
    const focused = document.activeElement?.closest?.("[data-control]")?.dataset.control;
    body.replaceChildren(this.options, this.captions, this.box, this.cellTitle);
    const change = (key) => (value) => {
      if (key === "rows" && value === this.columns) this.columns = this.rows;
      if (key === "columns" && value === this.rows) this.rows = this.columns;
      this[key] = value;
      if (key !== "metric") this.fit(key);
      this.chosen = null;
      this.draw();
    };
    const names = this.names();
    const first = this.heatmaps.map((heatmap) => heatmap.metric).filter((name) => this.metrics.some((known) => known.name === name));
    const others = this.metrics.map((metric) => metric.name).filter((name) => !first.includes(name));
    const controls = [
      ["metric", choice("metric", [...first, ...others], this.metric, change("metric"))],
      ["rows", choice("rows", names.includes(this.rows) ? names : [this.rows, ...names], this.rows, change("rows"))],
      ["columns", choice("columns", names, this.columns, change("columns"))],
      ...this.remaining().map((axis) => [axis.name, this.filter(axis)]),
    ];
    for (const [name, control] of controls) control.dataset.control = name;
    this.options.replaceChildren(...controls.map(([, control]) => control));
    this.options.querySelector(`[data-control="${CSS.escape(focused ?? "")}"] select`)?.focus();
    return this.plot();
  }

  /* Hyperparameters that vary within a cell. */
  remaining() {
    const [rows, columns, entries] = [this.axis(this.rows), this.axis(this.columns), this.entries(this.trials)];
    return this.axes.filter((axis) => {
      if (axis.name === this.rows || axis.name === this.columns) return false;
      const known = new Map();
      return entries.some((entry) => {
        const [key, value] = [`${rows.at(entry)}\n${columns.at(entry)}`, axis.at(entry.trial)];
        if (!known.has(key)) known.set(key, value);
        return known.get(key) !== value;
      });
    });
  }

  filter(axis) {
    const choices = distinct(this.trials.map((trial) => axis.at(trial)));
    const options = [["", `mean over all ${choices.length}`], ...choices.map((value) => [String(value), this.text(axis.name, value)])];
    return choice(axis.name, options, this.fixed[axis.name] ?? "", (value) => {
      if (value === "") delete this.fixed[axis.name];
      else this.fixed[axis.name] = value;
      this.draw();
    });
  }

  /* The trials that the selects leave. */
  selected() {
    const filters = this.remaining().filter((axis) => axis.name in this.fixed);
    this.isFiltered = filters.length > 0;
    return this.trials.filter((trial) => filters.every((axis) => String(axis.at(trial)) === this.fixed[axis.name]));
  }

  async plot() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const metric = this.column(this.metric);
    const grid = this.grid(metric);
    const { frames, alike } = grid;
    const best = this.best();
    const range = colourRange(grid.cells, metric.bounds);
    for (const index of frames) alike.delete(index);
    this.caption(metric, grid, frames.size ? best.text : [], range, alike.size > 0);
    await this.chart(metric, grid, frames, range, alike);
    if (turn === this.turn) this.onDraw(this.group(grid, metric));
  }

  published(cell) {
    const heatmap = this.heatmaps.find((known) => known.metric === this.metric && known.rows === this.rows && known.columns === this.columns);
    if (!heatmap || this.isFiltered || !this.request.published) return null;
    const same = (left, right) => (NUMBERS[left] ?? left) === right;
    return heatmap.published.find(([row, column]) => same(row, cell.row) && same(column, cell.column))?.[2] ?? null;
  }

  /* What a cell is, in words: the text of a screen reader and of the pointer. */
  words(cell, metric) {
    const lines = [`${this.rows}=${this.text(this.rows, cell.row)}, ${this.columns}=${this.text(this.columns, cell.column)}`];
    const spread = besideText(beside(cell, this.spread()), (value) => formatMetric(value, metric.percent, 3));
    lines.push(cell.count ? `${metric.label} ${formatMetric(cell.mean, metric.percent)}${spread}` : "no value");
    if (Number.isFinite(cell.iqm)) lines.push(`interquartile mean ${formatMetric(cell.iqm, metric.percent)}`);
    lines.push(`${plural(cell.count, "trial")}${cell.missing ? `, ${cell.missing} without a value` : ""}`);
    const published = this.published(cell);
    if (published !== null) lines.push(`paper ${formatMetric(published, metric.percent)}`);
    return lines;
  }

  /* Whether trials of searches are among the trials, whatever was proposed for them. */
  get averagesStudies() {
    const has = this.report.presets[this.request.preset]?.objectives && this.report.columns.has("study");
    return Boolean(has) && this.trials.some((trial) => this.report.value("study", trial) !== null);
  }

  caption(metric, grid, best, range, isMarked) {
    const lines = [];
    const text = described(grid.cells, this.nouns(), this.spread());
    if (text) lines.push(`${metric.label}: ${text}.`);
    if (this.averagesStudies) lines.push("Of a search a cell is the mean over all of its settings there.");
    if (best.length) lines.push(`Framed: ${best.join(". ")}.`);
    if (isMarked) lines.push(`${ALIKE} not told apart from the best: with it they have the truly best one with a probability of 95 %.`);
    if (range.widened) lines.push(`The colours span ${STANDARD_ERRORS} standard errors, because the means differ by less.`);
    if (this.given) lines.push("Other axes, and single values of the others, need all trials.");
    lines.push("Choose a cell with a click, or with the arrow keys and Enter, to see its trials.");
    this.captions.replaceChildren(...lines.map((line) => el("p", { class: "quiet" }, line)));
  }

  /* How values are written on an axis: short, unless two of them would be the same text and so one cell. */
  labels(name, values) {
    const texts = values.map((value) => this.text(name, value));
    return new Set(texts).size === texts.length ? (value) => this.text(name, value) : (value) => String(value ?? DASH);
  }

  async chart(metric, grid, frames, range, alike) {
    const across = grid.columnValues.length;
    const wide = this.section.body.clientWidth;
    const title = metric.direction ? [metric.label, `${metric.direction === "minimize" ? "lower" : "higher"} is better`] : [metric.label];
    const legendWidth = wide > 600 ? 20 + 6.6 * Math.max(...title.map((line) => line.length)) : 0; // about
    const scale = metric.percent ? 100 : 1;
    const [xLabel, yLabel] = [this.labels(this.columns, grid.columnValues), this.labels(this.rows, grid.rowValues)];
    const [columnOrder, rowOrder] = [grid.columnValues.map(xLabel), grid.rowValues.map(yLabel)];
    const labelWidth = 45 + Math.min(180, 6.4 * Math.max(...rowOrder.map((text) => text.length)));
    const most = Math.max(82, Math.min(150, 520 / across)); // few cells are larger
    const step = Math.max(30, Math.min(most, (wide - labelWidth - legendWidth) / across));
    const tall = step > 55 ? Math.max(50, Math.min(step / 2, 400 / grid.rowValues.length)) : 34;
    const cells = grid.cells.map((cell, index) => {
      const published = this.published(cell);
      const below = [
        ...[besideText(beside(cell, this.spread()), (value) => shortMetric(value, metric.percent)).trim()].filter(Boolean),
        ...(published === null ? [] : [`paper ${formatMetric(published, metric.percent, 3)}`]),
      ];
      return {
        index,
        x: columnOrder[index % across],
        y: rowOrder[Math.floor(index / across)],
        ...Object.fromEntries(["mean", "low", "high", "iqm"].map((name) => [name, Number.isFinite(cell[name]) ? cell[name] : null])),
        shade: Number.isFinite(cell.mean) ? scale * cell.mean : null,
        text: cell.count ? `${shortMetric(cell.mean, metric.percent)}${alike.has(index) ? ALIKE : ""}` : DASH,
        below: step > 55 ? below : [],
        best: frames.has(index),
        words: this.words(cell, metric).join(", "),
        tip: this.words(cell, metric).join("\n"),
      };
    });
    const view = await chart(this.box, "heatmap", {
      description: `Heatmap of ${metric.label}: ${this.rows} by ${this.columns}`,
      cells,
      chosen: this.index(grid),
      rows: this.rows,
      columns: this.columns,
      row_order: rowOrder,
      column_order: columnOrder,
      step,
      tall,
      angle: Math.max(...columnOrder.map((text) => 6.4 * text.length)) > step ? -25 : 0,
      range: [scale * range.low, scale * range.high],
      reverse: metric.direction === "minimize",
      legend: title,
      legend_side: legendWidth ? "right" : "bottom",
      legend_length: legendWidth ? Math.max(80, tall * grid.rowValues.length - 40) : Math.min(wide - labelWidth, Math.max(140, step * across)),
    });
    if (view) this.listen(view, grid, metric, across);
  }

  /* Clicks, and the keyboard: one cell is in the tab order, arrows move among them, Enter chooses. */
  listen(view, grid, metric, across) {
    const pick = (index) => {
      const cell = grid.cells[index];
      this.chosen = { row: String(cell.row), column: String(cell.column) };
      view.signal("chosen", index).runAsync();
      this.onPick(this.group(grid, metric));
    };
    view.addEventListener("click", (event, item) => item?.datum?.index !== undefined && pick(item.datum.index));
    const paths = [...this.box.querySelectorAll("g.mark-rect.cells_marks path, g.mark-rect.layer_0_marks path")];
    const byIndex = new Map(paths.map((path) => [path.__data__?.datum?.index, path]));
    const start = Math.max(0, this.index(grid));
    for (const [index, path] of byIndex) {
      path.setAttribute("role", "button");
      path.removeAttribute("aria-roledescription");
      path.setAttribute("tabindex", index === start ? "0" : "-1");
      path.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across };
        if (event.key === "Enter" || event.key === " ") pick(index);
        else if (!(event.key in steps)) return;
        event.preventDefault();
        const edge = { ArrowRight: index % across === across - 1, ArrowLeft: index % across === 0 };
        const next = edge[event.key] ? undefined : byIndex.get(index + (steps[event.key] ?? 0));
        if (!next || next === path) return;
        path.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      });
    }
  }

  index(grid) {
    if (!this.chosen) return -1;
    return grid.cells.findIndex((cell) => String(cell.row) === this.chosen.row && String(cell.column) === this.chosen.column);
  }

  /* The trials of the chosen cell, which is named below the chart; null if there is none. */
  group(grid, metric) {
    const cell = grid.cells[this.index(grid)];
    this.cellTitle.textContent = cell ? this.words(cell, metric).join("; ") : "";
    return cell ? { title: this.words(cell, metric)[0], trials: cell.trials, count: cell.count + cell.missing, metric: metric.name } : null;
  }
}
