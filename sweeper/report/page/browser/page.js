/* The page: its sections, the request that they show, and newer data where a server has them. */

const POLL_SECONDS = 3;
const MOST_SENTENCES = 3; // about best settings that are shown at once

class Page {
  constructor(report) {
    this.report = report;
    this.details = new TrialDetails();
    const open = (trial) => this.openTrial(trial);
    const spread = () => this.spread;
    this.spread = "interval"; // beside means
    this.opened = null; // the id of a trial that was opened from a table, which newer rows and other metrics leave open
    this.heatmap = new Heatmap({
      pick: (group) => this.openCell(group),
      draw: (group) => this.opened === null && this.details.set(this.report, group),
      spread,
    });
    this.search = new Search(open);
    this.rows = new Rows(open, () => this.leftOut());
    this.figures = new Figures(report.kinds, { spread });
    this.findings = new Findings();
    this.claims = new SweepClaims(open);
    const { grids, training, runs } = this.findings;
    this.sections = [training, this.heatmap.section, this.search.section, this.details.section, this.claims.section, ...this.figures.sections, grids, this.rows.section, runs];
    this.request = this.defaultRequest();
    this.connection = el("p", { class: "note", role: "status", hidden: "" });
    this.isLive = Boolean(document.body.dataset.live);
    this.source = { every: false, version: document.body.dataset.version }; // what the server is asked for
  }

  /* The request with most trials. */
  defaultRequest() {
    return this.report.requests[this.report.opens_with] ?? { label: "", title: "", preset: "", trials: [], count: 0, course: { statuses: [] }, best: {}, cells: [], figures: {} };
  }

  begin() {
    document.body.append(tip);
    document.getElementById("header").after(this.connection);
    document.getElementById("page").replaceChildren(...this.sections.map((section) => section.element));
    this.update();
    this.openLinked();
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      clearTimeout(this.resizing);
      this.resizing = setTimeout(() => {
        if (window.innerWidth === width) return;
        width = window.innerWidth;
        this.redraw();
      }, 200);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
    if (this.isLive) this.follow();
  }

  update() {
    const { report, request } = this;
    this.heatmap.set(report, request);
    this.search.set(report, request);
    this.figures.set(report, request);
    this.findings.set(report, request);
    this.claims.set(report, request);
    this.header();
    this.rows.set(report, request);
    if (this.opened !== null) this.details.set(report, this.openedGroup());
    else if (this.heatmap.element.hidden) this.details.set(report, null);
    this.redraw();
    this.rows.element.hidden = report.count === 0;
    const links = this.sections.filter((section) => !section.element.hidden).map((section) => el("a", { href: `#${section.id}` }, section.title));
    document.getElementById("contents").replaceChildren(...links);
  }

  redraw() {
    for (const section of this.sections) if (!section.element.hidden) section.draw();
  }

  header() {
    const { report, request } = this;
    const { statuses, ended } = request.course;
    const states = statuses.map(([status, count]) => `${count.toLocaleString("en")} ${status}`).join(", ");
    const parts = [el("h1", {}, report.name), report.about ? el("p", {}, report.about) : null];
    const controls = [];
    if (report.requests.length > 1) {
      const options = report.requests.map((known) => [known.label, known.title]);
      controls.push(choice("request", options, request.label, (label) => {
        this.request = report.requests.find((known) => known.label === label);
        this.heatmap.chosen = null;
        this.opened = null;
        this.details.set(report, null);
        this.update();
      }));
    }
    if (!(this.heatmap.element.hidden && !this.figures.haveSpread)) {
      const options = Object.entries(SPREADS);
      controls.push(choice("beside means", options, this.spread, (key) => {
        this.spread = key;
        this.redraw();
      }));
    }
    if (controls.length) parts.push(el("div", { class: "controls" }, controls));
    parts.push(el("p", { class: "status", id: "state" }, `${request.title ? `${request.title}: ` : ""}${request.total ? `${request.count.toLocaleString("en")} of ` : ""}${plural(request.total || request.count, "trial")}${states ? `: ${states}` : ""}`));
    const best = report.bestOf(request, report.presets[request.preset]?.headline);
    if (request.title !== request.label) parts.push(el("details", {}, el("summary", {}, "the request's whole name"), el("p", {}, request.label)));
    const sentences = best.text.map((sentence) => el("p", { class: "status" }, sentence));
    parts.push(...sentences.splice(0, MOST_SENTENCES));
    if (sentences.length) parts.push(el("details", {}, el("summary", {}, `${sentences.length} more best settings`), sentences));
    if (ended) parts.push(el("p", { class: "quiet" }, `last result ${ended.slice(0, 19).replace("T", " ")} UTC`));
    parts.push(this.leftOut());
    parts.push(...report.notes.map((note) => el("p", { class: "note" }, note)));
    document.getElementById("header").replaceChildren(...parts.filter(Boolean));
  }

  /* What the page lacks, and how to get it; null if it lacks nothing. */
  leftOut() {
    if (!this.report.lacksTrials) return null;
    const { text, command } = this.report.left_out;
    if (!this.isLive) return el("p", { class: "note" }, `${text} All are shown by `, el("code", {}, command));
    const all = el("button", { type: "button", disabled: this.source.every, onclick: () => this.readAll() }, this.source.every ? "reading all trials" : "show all trials");
    return el("p", { class: "note" }, `${text} `, all);
  }

  /* Ask the server for all trials, from now on; what they show is drawn when they have come. */
  readAll() {
    if (!this.isLive || !this.report.lacksTrials || this.source.every) return;
    this.source = { every: true, version: "" };
    this.header();
    this.rows.draw();
    this.poll();
  }

  openCell(group) {
    this.opened = null;
    this.details.set(this.report, group);
    this.readAll();
  }

  openTrial(trial) {
    this.opened = this.report.value("trial_id", trial);
    this.details.set(this.report, this.openedGroup());
    this.details.element.scrollIntoView();
  }

  /* Open the trial that a link names, as those of the page of all claims do: `#trial=ID`. */
  openLinked() {
    const id = decodeURIComponent(/^#trial=(.*)$/.exec(window.location.hash)?.[1] ?? "");
    const of = (request) => this.report.trialsOf(request).find((trial) => this.report.value("trial_id", trial) === id);
    const request = id && this.report.requests.find((known) => of(known) !== undefined);
    if (id && !request) this.readAll();
    if (!request) return;
    this.request = request;
    this.update();
    this.openTrial(of(request));
  }

  /* The trial that was opened from a table, in the section of the trials. */
  openedGroup() {
    const { report, opened } = this;
    const position = report.trialsOf(this.request).find((trial) => report.value("trial_id", trial) === opened);
    const metric = report.presets[this.request.preset]?.headline ?? [...report.series.keys()][0];
    return position === undefined ? null : { title: `Trial ${opened}`, trials: [position], count: 1, metric };
  }

  /* Ask the server for newer data again and again. */
  async follow() {
    try {
      await this.poll();
    } finally {
      setTimeout(() => this.follow(), 1000 * POLL_SECONDS);
    }
  }

  /* Show newer data, if the server has some. They keep what was chosen. */
  async poll() {
    const source = this.source;
    const newer = await newerData(this.report.name, source, (text) => {
      this.connection.textContent = text;
      this.connection.hidden = text === "";
    });
    const report = newer && (await Report.read(newer.report, newer.curves));
    if (!report || source !== this.source) return;
    const [wanted, lacked] = [this.request.label, this.report.lacksTrials];
    this.report = report;
    this.request = this.report.requests.find((known) => known.label === wanted) ?? this.defaultRequest();
    this.source = { ...source, version: newer.version };
    this.update();
    if (lacked && !report.lacksTrials && this.opened === null) this.openLinked();
  }
}

/* What the server has if it is another version than that of the source; null if it is not, or if there is no such
   answer, which is passed to `say`. */
async function newerData(name, { every, version }, say) {
  let answer;
  try {
    answer = await fetch(`${encodeURIComponent(name)}.${every ? "trials" : "json"}`, { cache: "no-store", headers: { "If-None-Match": `"${version}"`, ...authorization() } });
  } catch {
    say("No newer data: the server has ended.");
    return null; // it may come back
  }
  say(answer.ok || answer.status === 304 ? "" : `No newer data: ${(await answer.text()).trim()}.`);
  return answer.ok ? answer.json() : null; // not if nothing is newer: 304
}

async function begin() {
  try {
    const report = await Report.read(embedded("report"), embedded("curves"));
    new Page(report).begin();
  } catch (error) {
    document.getElementById("loading").textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  }
}

begin();
