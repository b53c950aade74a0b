/* Values as text, as in the pictures of a sweep. */

const DASH = "\u2013";
const MINUS = "\u2212";

const signed = (text) => text.replace(/^-/, MINUS).replace(/e-0?/, "e-");

function formatValue(value) {
  if (value === null || value === undefined || value === "") return DASH;
  if (value === Infinity) return "\u221e";
  if (value === -Infinity) return `${MINUS}\u221e`;
  if (typeof value !== "number") return String(value);
  return signed(String(Number.isInteger(value) ? value : Number(value.toPrecision(4))));
}

/* A metric with `digits` significant figures; in percent if the sweep shows it so. */
function formatMetric(value, percent = false, digits = 4) {
  if (typeof value !== "number" || !Number.isFinite(value)) return formatValue(value);
  const shown = percent ? 100 * value : value;
  if (Number.isInteger(shown) && Math.abs(shown) < 1e6) return signed(String(shown));
  const size = Math.abs(shown);
  if (size >= 10 ** (digits - 1) && size < 1e6) return signed(shown.toFixed(0));
  return signed(size >= 1e-4 && size < 1e6 ? shown.toPrecision(digits) : shown.toExponential(digits - 1));
}

/* A metric for a small cell: three significant figures, but no more than three decimals. */
function shortMetric(value, percent) {
  const shown = percent ? 100 * value : value;
  return Math.abs(shown) < 0.1 && Math.abs(shown) >= 0.0005 ? signed(shown.toFixed(3)) : formatMetric(value, percent, 3);
}

/* A value in a table: at most four significant figures. The element's `data-value` has all digits. */
function formatCell(column, value) {
  if (typeof value !== "number") return formatValue(value);
  if (column.kind === "metric") return formatMetric(value, column.percent);
  return String(value).length > 7 ? formatMetric(value) : formatValue(value);
}

const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/* The same order everywhere: numbers ascend, then texts, then null. */
function compare(left, right) {
  const empty = (value) => value === null || value === undefined || Number.isNaN(value);
  if (empty(left) || empty(right)) return Number(empty(left)) - Number(empty(right));
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left) < String(right) ? -1 : Number(String(left) > String(right));
}

const distinct = (values) => [...new Set(values)].sort(compare);
