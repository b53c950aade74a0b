/* The table of all trials: sorted by a click on a column, filtered by words and conditions, and saved as CSV. */

const ROWS_PER_PAGE = 50;
const CONDITION = /^([\w.]+)(!=|>=|<=|=|>|<)(.*)$/;

const NAMED = 12;

/* The first texts of a list, and how many more there are. */
const listing = (texts) => `${texts.slice(0, NAMED).join(", ")}${texts.length > NAMED ? ` and ${texts.length - NAMED} more` : ""}`;

/* What a filter says: `beta=0.5 nu>=1 status!=pruned word`, of which all must hold. Each part has a `test` of a trial,
   and the reason if it selects none of the trials. Words look into every column. Shares in percent are compared so. */
function conditions(report, text, columns, trials, textOf) {
  return text.trim().split(/\s+/).filter(Boolean).map((part) => {
    const [, name, sign, wanted] = CONDITION.exec(part) ?? [];
    const column = report.columns.get(name);
    const test = column ? comparison(report, column, sign, wanted, textOf(column)) : wordTest(report, part, columns);
    return { test, reason: trials.some(test) ? null : reasonFor(part, column, name, wanted, columns, trials, textOf) };
  });
}

function wordTest(report, part, columns) {
  const word = part.toLowerCase();
  return (trial) => columns.some((other) => String(report.className(other, trial) ?? other.at(trial) ?? "").toLowerCase().includes(word));
}

function comparison(report, column, sign, wanted, text) {
  const asNumber = { inf: Infinity, "∞": Infinity, "-inf": -Infinity }[wanted] ?? (wanted === "" ? NaN : Number(wanted));
  const empty = ["", "null", DASH].includes(wanted);
  return (trial) => {
    const value = column.at(trial);
    if (value === null) return empty ? sign === "=" : sign === "!=";
    if (empty) return sign === "!=";
    const isNumber = typeof value === "number";
    const shown = isNumber && column.percent ? 100 * value : value;
    const order = isNumber ? shown - asNumber : compare(String(value), wanted);
    const same = isNumber ? shown === asNumber || text(value) === wanted : String(value) === wanted;
    const equal = same || report.className(column, trial) === wanted;
    return { "=": equal, "!=": !equal, ">": order > 0, "<": order < 0, ">=": equal || order > 0, "<=": equal || order < 0 }[sign];
  };
}

/* Why a part of a filter selects nothing, and what there is. */
function reasonFor(part, column, name, wanted, columns, trials, textOf) {
  if (!name) return `no trial has the text '${part}' in a column that is shown`;
  if (!column) return `there is no column '${name}'; there are: ${listing(columns.map((other) => other.name))}`;
  const values = distinct(trials.map((trial) => column.at(trial)));
  const known = values.map((value) => (value === null ? "null" : column.isNumeric ? textOf(column)(value) : String(value)));
  const of = column.percent ? ` (in percent)` : "";
  return `no trial has ${part}${of}; ${name} has: ${listing(known)}`;
}

class Rows {
  /* `leftOut` makes what is said of the trials that the page lacks. */
  constructor(onTrial, leftOut) {
    this.onTrial = onTrial;
    this.leftOut = leftOut;
    this.missing = el("div");
    this.section = new Section("rows", "All trials", (body) => this.render(body));
    this.text = "";
    this.page = 0;
    this.order = null; // {name, descending}
    this.everything = false;
    this.search = el("input", { type: "search", placeholder: "beta=0.5 status!=pruned", spellcheck: "false", oninput: () => this.filter() });
    this.all = el("input", { type: "checkbox", onchange: () => { this.everything = this.all.checked; this.draw(); } });
    this.count = el("p", { class: "status", role: "status" });
    this.table = el("table");
    this.before = el("button", { type: "button", onclick: () => this.turn(-1) }, "previous");
    this.after = el("button", { type: "button", onclick: () => this.turn(1) }, "next");
    this.position = el("span");
  }

  get element() {
    return this.section.element;
  }

  set(report, request) {
    this.report = report;
    this.trials = report.trialsOf(request);
    this.texts = new Map();
    const vary = varying(report, this.trials).filter((column) => column.name !== "schedule");
    const run = ["error", "epochs_run", "seconds", "device"].map((key) => report.columns.get(key)).filter(Boolean);
    const recorded = run.filter((column) => this.trials.some((trial) => column.at(trial) !== null));
    const first = ["trial_id", "status"].map((key) => report.columns.get(key));
    this.few = [...first, ...vary, ...measured(report, this.trials), ...recorded];
    this.headline = report.presets[request.preset]?.headline;
    if (this.order === null) {
      const metric = report.columns.get(this.headline);
      if (metric) this.order = { name: metric.name, descending: metric.direction !== "minimize" };
    }
  }

  /* How the numbers of a column are written: those of all trials of the request alike. */
  textOf(column) {
    if (!this.texts.has(column)) this.texts.set(column, columnWriter(column, this.trials));
    return this.texts.get(column);
  }

  get columns() {
    if (!this.everything) return this.few;
    const others = [...this.report.columns.values()].filter((column) => !this.few.includes(column));
    return [...this.few, ...others];
  }

  draw() {
    this.section.draw();
  }

  render(body) {
    if (!this.search.isConnected) {
      body.replaceChildren(
        el("div", { class: "controls" },
          el("label", {}, "filter: words, or conditions on columns", this.search),
          el("label", { class: "inline" }, this.all, "all columns"),
          el("button", { type: "button", onclick: () => this.save() }, "CSV of the filtered trials")),
        this.missing,
        this.count,
        scrolling("table: all trials", this.table),
        el("div", { class: "controls" }, this.before, this.position, this.after),
      );
    }
    this.fill();
  }

  filter() {
    this.text = this.search.value;
    this.page = 0;
    this.fill();
  }

  turn(step) {
    this.page += step;
    this.fill();
  }

  sort(name) {
    const same = this.order?.name === name;
    this.order = { name, descending: same ? !this.order.descending : false };
    this.page = 0;
    this.fill();
    this.table.querySelector(`button[data-column="${CSS.escape(name)}"]`)?.focus();
  }

  /* The filtered trials in order. Null stays last either way. */
  shown() {
    const parts = conditions(this.report, this.text, this.columns, this.trials, (column) => this.textOf(column));
    const reasons = parts.map((part) => part.reason).filter(Boolean);
    const found = this.trials.filter((trial) => parts.every((part) => part.test(trial)));
    this.reason = reasons.length ? reasons.join("; ") : found.length || !parts.length ? "" : "each condition holds for some trials, but not all for one";
    const column = this.report.columns.get(this.order?.name);
    if (!column) return found;
    const sign = this.order.descending ? -1 : 1;
    return found.sort((left, right) => {
      const [a, b] = [column.at(left), column.at(right)];
      return a === null || b === null ? compare(a, b) : sign * compare(a, b);
    });
  }

  fill() {
    const trials = this.shown();
    this.missing.replaceChildren(...[this.leftOut()].filter(Boolean));
    const pages = Math.max(1, Math.ceil(trials.length / ROWS_PER_PAGE));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const start = this.page * ROWS_PER_PAGE;
    this.count.textContent = `${trials.length.toLocaleString("en")} of ${plural(this.trials.length, "trial")}${this.report.lacksTrials ? " on this page" : ""}${this.reason ? `: ${this.reason}` : ""}`;
    this.position.textContent = `page ${this.page + 1} of ${pages}`;
    this.before.disabled = this.page === 0;
    this.after.disabled = this.page === pages - 1;
    const columns = this.columns;
    this.table.replaceChildren(el("thead", {}, this.head(columns)), el("tbody", {}, trials.slice(start, start + ROWS_PER_PAGE).map((trial) => this.row(trial, columns))));
  }

  head(columns) {
    return el("tr", {}, columns.map((column) => {
      const sorted = this.order?.name === column.name;
      const arrow = sorted ? (this.order.descending ? " \u2193" : " \u2191") : "";
      const button = el("button", { type: "button", "data-column": column.name, onclick: () => this.sort(column.name) }, `${column.label}${arrow}`);
      const state = sorted ? (this.order.descending ? "descending" : "ascending") : "none";
      return el("th", { scope: "col", class: column.isNumeric ? "number" : null, "aria-sort": state }, button);
    }));
  }

  row(trial, columns) {
    return el("tr", {}, columns.map((column) => {
      const value = column.at(trial);
      if (column.name === "trial_id") {
        return el("td", {}, el("button", { type: "button", onclick: () => this.onTrial(trial) }, value));
      }
      if (column.isNumeric) return number(value, this.report.className(column, trial) ?? this.textOf(column)(value));
      const text = formatValue(value);
      return el("td", { class: text.length > 40 ? "long" : null }, text);
    }));
  }

  /* All columns and all digits, as in the Parquet files. A text that a spreadsheet would take for a formula begins with '. */
  csv() {
    const columns = [...this.report.columns.values()];
    const quoted = (value) => {
      const plain = value === null ? "" : value === Infinity ? "inf" : value === -Infinity ? "-inf" : String(value);
      const text = typeof value === "string" && /^\s*[=+\-@\uff0b\uff0d\uff1d\uff20]/.test(value) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(value) ? `'${plain}` : plain;
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = this.shown().map((trial) => columns.map((column) => quoted(column.at(trial))).join(","));
    return [columns.map((column) => quoted(column.name)).join(","), ...lines, ""].join("\r\n");
  }

  save() {
    const address = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    el("a", { href: address, download: `${this.report.name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
}
