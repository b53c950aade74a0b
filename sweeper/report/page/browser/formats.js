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

/* How the numbers of a column are written: all with the same decimals. Those that have few digits keep them; of others
   one of the middle size has `digits` significant figures. Columns of very small numbers are in scientific notation,
   and so is a number far above the others, or one whose decimals would all be zero. */
function columnText(values, percent = false, digits = 4) {
  const scaled = (value) => Number((percent ? 100 * value : value).toPrecision(12));
  const sizes = values.filter(Number.isFinite).map((value) => Math.abs(scaled(value)));
  const isShort = sizes.every((size) => size < 1e6 && (Number.isInteger(size) || Number(size.toPrecision(digits)) === size));
  const typical = median(sizes.filter((size) => size > 0)) || 1;
  const needed = (size) => Array.from({ length: 7 }, (_, count) => count).find((count) => Number(size.toFixed(count)) === size) ?? 7;
  const decimals = isShort ? Math.max(0, ...sizes.map(needed)) : Math.max(0, digits - 1 - Math.floor(Math.log10(typical)));
  const mantissa = isShort ? Math.max(0, ...sizes.map((size) => size.toExponential().split("e")[0].length - 2)) : digits - 1;
  const isScientific = decimals > 5 || typical >= 1e6;
  return (value) => {
    if (typeof value !== "number" || !Number.isFinite(value)) return formatValue(value);
    const [shown, size] = [scaled(value), Math.abs(scaled(value))];
    const isFixed = size === 0 || (!isScientific && size < 1e6 && size >= 0.5 * 10 ** -decimals);
    return signed(isFixed ? shown.toFixed(isScientific ? 0 : decimals) : shown.toExponential(mantissa));
  };
}

/* How a column's values of these trials are written. */
const columnWriter = (column, trials) => columnText(trials.map((trial) => column.at(trial)), column.percent);

const median = (values) => {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
};

const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/* The same order everywhere: numbers ascend, then texts, then null. */
function compare(left, right) {
  const empty = (value) => value === null || value === undefined || Number.isNaN(value);
  if (empty(left) || empty(right)) return Number(empty(left)) - Number(empty(right));
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left) < String(right) ? -1 : Number(String(left) > String(right));
}

const distinct = (values) => [...new Set(values)].sort(compare);
