/* Elements of the page. Text is always set as text, so nothing that a row holds is read as HTML. */

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

let choices = 0;

/* `options` are texts, or [value, text]. `choose` gets the value. */
function choice(label, options, value, choose) {
  const id = `choice-${(choices += 1)}`;
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const select = el("select", { id, onchange: () => choose(select.value) });
  select.append(...pairs.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return el("div", { class: "field" }, el("label", { for: id }, label), select);
}

const number = (value, text) => el("td", { class: "number", "data-value": value === null ? "" : String(value) }, text);

/* A table below its caption, which neither scrolls with it nor is as narrow. */
function plainTable(caption, heads, rows, label = caption) {
  const isNumber = (index) => rows[0]?.children[index]?.classList.contains("number");
  const head = el("tr", {}, heads.map((text, index) => el("th", { scope: "col", class: isNumber(index) ? "number" : null }, text)));
  const table = el("table", { "aria-label": label }, el("thead", {}, head), el("tbody", {}, rows));
  return el("div", { class: "captioned" }, el("p", { class: "quiet caption" }, caption), scrolling(`table: ${label}`, table));
}

/* What can be wider than the screen scrolls by itself, also by keyboard. */
const scrolling = (label, element) =>
  el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, element);

const values = (pairs) =>
  el("dl", { class: "values" }, pairs.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));

/* A section that is drawn when it comes into view, and again when `draw` is called. */
class Section {
  constructor(id, title, render) {
    this.render = render;
    this.body = el("div");
    this.element = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), this.body);
    this.title = title;
    this.id = id;
    this.seen = false;
    this.observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && this.show(), {
      rootMargin: "400px",
    });
    this.observer.observe(this.element);
  }

  show() {
    if (this.seen) return;
    this.seen = true;
    this.observer.disconnect();
    this.draw();
  }

  draw() {
    if (this.seen) this.render(this.body);
  }
}
