/* Claims: what a paper says, the verdict of the rows, and the rows behind it. */

const VERDICTS = { holds: "✓", refuted: "✗", undecided: "?", "not run": "–" };
const MEANINGS = {
  holds: "the whole interval is on the claim's side",
  refuted: "the whole interval is on the other side",
  undecided: "the interval is on both sides, or there is none: nobody can say yet",
  "not run": "the store lacks the rows",
};

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const plus = (value) => (value === null ? DASH : `${value > 0 ? "+" : ""}${formatMetric(value, false, 3)}`);
const intervalText = ({ low, high }) => (low === null && high === null ? "no interval" : `${plus(low)} to ${plus(high)}`);

/* The interval of the difference, drawn over the part of the axis on which the claim holds. */
function intervalDrawing({ relation, margin, difference, low, high }) {
  const limits = relation === "~" ? [-margin, margin] : [relation === "<" ? -margin : margin];
  const known = [low, high, difference].filter((value) => value !== null);
  if (!known.length) return el("span", {});
  const [least, most] = [Math.min(...known, ...limits), Math.max(...known, ...limits)];
  const pad = 0.2 * (most - least) || Math.abs(most) || 1;
  const [width, height] = [140, 18];
  const at = (value) => (width * (value - least + pad)) / (most - least + 2 * pad);
  const [from, to] = relation === "~" ? limits : relation === "<" ? [least - pad, limits[0]] : [limits[0], most + pad];
  const line = (kind, x1, x2, y1, y2) => svg("line", { class: kind, x1, x2, y1, y2 });
  const [start, end] = [low ?? least - pad, high ?? most + pad];
  const bar = low === null && high === null ? [] : [line("bar", at(start), at(end), height / 2, height / 2)];
  return svg(
    "svg", { class: "interval", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    svg("rect", { class: "side", x: at(from), width: Math.max(0, at(to) - at(from)), y: 0, height }),
    ...limits.map((limit) => line("limit", at(limit), at(limit), 0, height)),
    ...bar,
    ...(difference === null ? [] : [svg("circle", { class: "dot", cx: at(difference), cy: height / 2, r: 3.5 })]),
  );
}

/* A claim: one line, and below it what judged it. `linkOf` returns the element that names a trial. */
function claimElement(claim, linkOf, withPaper) {
  const mark = el("span", { class: `verdict ${claim.verdict.replace(" ", "-")}` }, `${VERDICTS[claim.verdict]} ${claim.verdict}`);
  const where = [withPaper ? claim.paper.replace(/ \(.*/, "") : "", claim.place].filter(Boolean).join(", ");
  const said = el("span", { class: "said" }, el("b", {}, claim.claim), ` ${claim.sentence} `, el("small", { class: "quiet" }, where));
  const figures = el("span", { class: "figures" }, claim.difference === null ? DASH : plus(claim.difference),
    el("small", { class: "quiet" }, claim.difference === null ? "" : intervalText(claim)));
  const facts = el("span", { class: "facts" }, claim.n ? `n = ${claim.n}` : "", el("small", { class: "quiet" }, claim.published ? `paper ${claim.published}` : ""));
  const data = el("span", { class: "facts" }, claim.verdict === "not run" ? "" : claim.request, el("small", { class: "quiet" }, claim.data));
  const summary = el("summary", {}, mark, said, figures, intervalDrawing(claim), facts, data);
  const details = el("details", { class: "claim" }, summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(behind(claim, linkOf));
  });
  return details;
}

function behind(claim, linkOf) {
  const pairs = [
    ["left side", formatMetric(claim.left)],
    ["right side", formatMetric(claim.right)],
    ["replicates", claim.n ? `${claim.n}${claim.paired ? " pairs" : ""}` : DASH],
    ["p (least level that decides)", claim.n ? formatMetric(claim.p, false, 2) : DASH],
    ["p after Holm's correction", claim.n ? formatMetric(claim.holm, false, 2) : DASH],
  ];
  const rows = claim.trials.map((trial) => el("tr", {}, el("td", {}, trial.side), el("td", {}, trial.at), number(trial.value, formatMetric(trial.value)), el("td", {}, linkOf(claim, trial.trial))));
  const more = claim.count > rows.length ? `, the first ${rows.length} of ${claim.count.toLocaleString("en")}` : "";
  return el("div", { class: "behind" },
    el("p", {}, `${claim.sweep}: `, el("code", {}, claim.judge)),
    claim.reason ? el("p", { class: "note" }, claim.reason) : null,
    values(pairs),
    ...claim.command.split("\n").filter(Boolean).map((command) => el("p", {}, "not run: ", el("code", {}, command))),
    rows.length ? plainTable(`The rows behind it${more}`, ["side", "at", "value", "trial"], rows, `rows of ${claim.claim}`) : null);
}

/* The claims of the request on the page of a sweep. */
class SweepClaims {
  constructor(openTrial) {
    this.section = new Section("claims", "Claims", (body) => this.render(body));
    this.element = this.section.element;
    this.openTrial = openTrial;
  }

  set(report, request) {
    this.report = report;
    this.claims = report.claims.filter((claim) => claim.request === request.label);
    this.element.hidden = !this.claims.length;
  }

  render(body) {
    const ids = new Map(Array.from({ length: this.report.count }, (_, trial) => [this.report.value("trial_id", trial), trial]));
    const link = (_, id) => (ids.has(id) ? el("button", { onclick: () => this.openTrial(ids.get(id)) }, id) : id);
    const counts = Object.keys(VERDICTS).map((verdict) => `${this.claims.filter((claim) => claim.verdict === verdict).length} ${verdict}`);
    body.replaceChildren(
      el("p", {}, `${plural(this.claims.length, "claim")} of the paper, as the last run or sweeper claims judged them: ${counts.join(", ")}.`),
      legend(),
      ...this.claims.map((claim) => claimElement(claim, link, false)));
  }
}

const legend = () => el("p", { class: "quiet" },
  "Each line has the difference of the two sides with its 95 % interval, which is drawn over the shaded part of the axis on which the claim holds, and the number of replicates n. Open it for the rows behind it.");
