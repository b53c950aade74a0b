/* Figures of a preset, of any kind: a heading above charts with their caption, or above a table. */

/* A mean and what stands beside it, with its mark, the interquartile mean, the number of trials, the paper's figure and the difference from it. */
function figureCell(cells, index, show, spread) {
  const own = Object.fromEntries(MEASURED.map((name) => [name, cells[name][index]]));
  const { mean, iqm, count, missing } = own;
  const [published, difference] = [cells.published[index], cells.difference[index]];
  const text = count ? `${show(mean)}${besideText(beside(own, spread), show)}${cells.mark[index]}` : DASH;
  const below = iqm === null ? [] : [`IQM ${show(iqm)}`];
  if (published !== null) {
    const sign = difference > 0 ? "+" : "";
    below.push(`paper ${show(published)}${difference === null ? "" : ` (${sign}${show(difference)})`}`);
  }
  if (count && missing) below.push(`${count} of ${count + missing} trials`);
  const cell = number(mean, text);
  cell.append(...below.map((line) => el("small", {}, line)));
  return cell;
}

function paperTable({ name, captions, rows, columns, metrics, cells, labels }, write, spread) {
  const labelled = (text) => (Object.hasOwn(labels, text) ? labels[text] : text);
  const shown = (key, value) => String(write(key, NUMBERS[value] ?? value));
  const count = cells.metric.length;
  const keyOf = (index) => rows.map((key) => String(cells[key][index])).join("\n");
  const places = new Map();
  for (let index = 0; index < count; index += 1) {
    const key = keyOf(index);
    if (!places.has(key)) places.set(key, new Map());
    places.get(key).set(`${columns ? String(cells[columns][index]) : ""}\n${cells.metric[index]}`, index);
  }
  const across = columns ? [...new Set(cells[columns].map(String))] : [""];
  const texts = new Map(columns ? cells[columns].map((value) => [String(value), shown(columns, value)]) : []);
  const heads = across.flatMap((value) => metrics.map((metric) => {
    const unit = metric.percent ? `${metric.name} (%)` : metric.name;
    const label = Object.hasOwn(labels, unit) || !Object.hasOwn(labels, metric.name) ? labelled(unit) : labels[metric.name];
    const text = texts.get(value);
    return columns ? `${Object.hasOwn(labels, text) ? labels[text] : `${labelled(columns)}=${text}`}: ${label}` : label;
  }));
  const measured = (name) => ["mean", "low", "high", "std"].flatMap((kind) => cells[kind].filter((_, index) => cells.metric[index] === name));
  const shows = new Map(metrics.map((metric) => [metric.name, columnText(measured(metric.name), metric.percent)]));
  const body = [...places.values()].map((row) => {
    const first = row.values().next().value;
    const keys = rows.map((key) => el("th", { scope: "row" }, labelled(shown(key, cells[key][first]))));
    const figures = across.flatMap((value) => metrics.map((metric) => {
      const index = row.get(`${value}\n${metric.name}`);
      return index === undefined ? el("td", {}, DASH) : figureCell(cells, index, shows.get(metric.name), spread);
    }));
    return el("tr", {}, keys, figures);
  });
  return plainTable(captions[spread], [...rows.map(labelled), ...heads], body, name);
}

/* A table whose cells Python has written, for each of what may stand beside means. */
function writtenTable({ name, captions, rows, texts }, spread) {
  const shown = texts[spread];
  const heads = Object.keys(shown);
  const body = shown[heads[0]].map((_, index) => el("tr", {}, heads.map((head) => (rows.includes(head)
    ? el("th", { scope: "row" }, shown[head][index])
    : el("td", { class: "number" }, shown[head][index])))));
  return plainTable(captions[spread], heads, body, name);
}

/* The rows of a table that is given by column. */
const rowsOf = (columns) => {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, index) => Object.fromEntries(names.map((name) => [name, columns[name][index]])));
};

/* A chart whose values Python has made; `margins` are what is beside its plot, and where it is narrow, which has its
   legend below. */
function figureChart(box, { chart: name, values, data, margins }) {
  const isNarrow = box.clientWidth < 560;
  const legend = values.legend && isNarrow ? { legend: { ...values.legend, orient: "bottom", columns: 2, offset: 10 } } : {};
  const points = Object.fromEntries(Object.entries(data).map(([key, columns]) => [key, rowsOf(columns)]));
  return chart(box, name, { ...values, ...points, ...legend, width: widthFor(box, margins[Number(isNarrow)], values.width) });
}

class Figures {
  /* `kinds` are {id, title}; each has a section. `spread` says what stands beside means. */
  constructor(kinds, { spread }) {
    this.spread = spread;
    this.sections = kinds.map(({ id, title }) => new Section(id, title, (body) => this.render(body, id)));
  }

  set(report, request) {
    Object.assign(this, { report, request });
    this.write = report.writer(report.trialsOf(request));
    for (const section of this.sections) section.element.hidden = !request.figures[section.id];
  }

  get haveSpread() {
    return Object.values(this.request.figures).flat().some((figure) => figure.cells || figure.texts);
  }

  /* Metrics of a figure in the unit that they have on the whole page. */
  inUnit(metrics) {
    return metrics.map((metric) => ({ ...metric, percent: this.report.columns.get(metric.name)?.percent ?? metric.percent }));
  }

  render(body, kind) {
    const drawn = [];
    const parts = this.request.figures[kind].map((shown) => {
      const heading = el("h3", {}, shown.name.replaceAll("_", " "));
      if (shown.cells) return el("div", {}, heading, paperTable({ ...shown, metrics: this.inUnit(shown.metrics) }, this.write, this.spread()));
      if (shown.texts) return el("div", {}, heading, writtenTable(shown, this.spread()));
      const boxes = shown.charts.map(() => chartBox());
      drawn.push(...shown.charts.map((one, index) => [boxes[index], one]));
      return el("div", {}, heading, el("p", { class: "quiet" }, shown.captions[this.spread()]), el("div", { class: "abreast" }, boxes));
    });
    body.replaceChildren(...parts);
    return Promise.all(drawn.map(([box, one]) => figureChart(box, one)));
  }
}
