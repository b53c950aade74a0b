/* The page of all claims: counts by paper, filters, and the claims by verdict. */

class ClaimsPage {
  constructor({ store, claims, notes, level }) {
    Object.assign(this, { store, claims, notes, level });
    this.chosen = { paper: "", verdict: "", request: "", words: "", holm: false };
  }

  begin() {
    const { claims } = this;
    document.getElementById("header").append(
      el("p", {}, `What holds, what is refuted, and what nobody can say yet, by the rows in ${this.store}.`),
      ...this.notes.map((note) => el("p", { class: "note" }, note)));
    const all = (name) => [["", "all"], ...distinct(claims.map((claim) => claim[name]))];
    const choose = (name) => (value) => { this.chosen[name] = value; this.draw(); };
    const words = el("input", { type: "search", id: "words", oninput: () => choose("words")(words.value) });
    const holm = el("input", { type: "checkbox", id: "holm", onchange: () => choose("holm")(holm.checked) });
    const ran = [["", "all"], ...distinct(claims.filter((claim) => claim.verdict !== "not run").map((claim) => claim.request))];
    this.counts = el("section", { "aria-label": "Counts" });
    this.lists = el("div");
    document.getElementById("page").replaceChildren(
      this.counts,
      el("div", { class: "controls" },
        choice("paper", all("paper"), "", choose("paper")),
        choice("verdict", [["", "all"], ...Object.keys(VERDICTS)], "", choose("verdict")),
        choice("preset", ran, "", choose("request")),
        el("label", { for: "words" }, "search", words),
        el("label", { class: "inline", for: "holm" }, holm, "correct for the number of claims (Holm)")),
      legend(),
      this.lists);
    this.draw();
  }

  /* The claims that the filters leave, with the verdicts that Holm's correction leaves if it is wanted. */
  shown() {
    const { paper, verdict, request, words, holm } = this.chosen;
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const decided = (claim) => claim.verdict === "holds" || claim.verdict === "refuted";
    const judged = holm
      ? this.claims.map((claim) => (decided(claim) && claim.holm > 1 - this.level ? { ...claim, verdict: "undecided", reason: "by Holm's correction" } : claim))
      : this.claims;
    return judged.filter((claim) => {
      const text = [claim.claim, claim.sentence, claim.place, claim.sweep, claim.judge, claim.data].join(" ").toLowerCase();
      return (!paper || claim.paper === paper) && (!verdict || claim.verdict === verdict)
        && (!request || (claim.request === request && claim.verdict !== "not run")) && wanted.every((word) => text.includes(word));
    });
  }

  draw() {
    const shown = this.shown();
    const link = (claim, trial) => (claim.page ? el("a", { href: `${encodeURIComponent(claim.sweep)}.html#trial=${encodeURIComponent(trial)}` }, trial) : trial);
    this.counts.replaceChildren(...this.summary(shown));
    const kinds = Object.keys(VERDICTS).filter((verdict) => shown.some((claim) => claim.verdict === verdict));
    this.lists.replaceChildren(...kinds.map((verdict) => {
      const own = shown.filter((claim) => claim.verdict === verdict);
      const id = verdict.replace(" ", "-");
      return el("section", { id, "aria-labelledby": `${id}-title` },
        el("h2", { id: `${id}-title` }, `${own.length.toLocaleString("en")} ${verdict}`), el("p", { class: "quiet" }, `${MEANINGS[verdict]}.`),
        ...own.map((claim) => claimElement(claim, link, true)));
    }));
    document.getElementById("contents").replaceChildren(...kinds.map((verdict) =>
      el("a", { href: `#${verdict.replace(" ", "-")}` }, `${VERDICTS[verdict]} ${verdict}`)));
  }

  /* Verdicts by paper and by the preset whose rows judged, and how many intervals are expected to miss the truth. */
  summary(shown) {
    const groups = new Map();
    for (const claim of shown) {
      const key = [claim.paper, claim.verdict === "not run" ? "no rows" : claim.request].join("\n");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(claim);
    }
    const rows = [...groups].sort(([left], [right]) => compare(left, right)).map(([key, claims]) => {
      const [paper, request] = key.split("\n");
      const counts = Object.keys(VERDICTS).map((verdict) => claims.filter((claim) => claim.verdict === verdict).length);
      return el("tr", {}, el("th", { scope: "row" }, paper), el("td", {}, request), counts.map((count) => number(count, count ? String(count) : DASH)));
    });
    const tested = shown.filter((claim) => claim.low !== null || claim.high !== null).length;
    const chance = this.chosen.holm
      ? `Corrected for all claims of this page (Holm): some verdict is wrong by chance with a probability of at most ${format(1 - this.level)}.`
      : `Each of ${tested} intervals misses the truth with a probability of ${format(1 - this.level)}: ${formatMetric(tested * (1 - this.level), false, 2)} misses are expected.`;
    return [
      rows.length ? plainTable("Claims by paper, by the preset whose rows judge them, and by verdict", ["paper", "preset", ...Object.keys(VERDICTS)], rows) : el("p", {}, "No claim is like that."),
      el("p", {}, chance)];
  }
}

const format = (share) => `${Math.round(100 * share)} %`;

async function begin() {
  try {
    new ClaimsPage(await inflated(embedded("report")).json()).begin();
  } catch (error) {
    document.getElementById("loading").textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  }
}

begin();
