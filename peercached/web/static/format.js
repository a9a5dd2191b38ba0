// Numbers for people. `null` and `undefined` are shown as a dash.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// As `peercachectl` shows it: three digits and a binary unit.
export function bytes(value) {
  if (value == null) return "–";
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? Number(value.toPrecision(3)) : value.toFixed(0)} ${UNITS[unit]}`;
}

export const rate = (value) => (value == null ? "–" : `${bytes(value)}/s`);

export const perSecond = (value) => (value == null ? "–" : `${Math.round(value).toLocaleString("en")} /s`);

export const percent = (share) =>
  share == null ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export function seconds(value) {
  if (value == null) return "–";
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value.toFixed(1)} s`;
}

// 23:59:59, as the viewer's clock has it; of seconds since 1970.
export const time = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

export function age(value) {
  if (value == null) return "–";
  if (value < 90) return `${value.toFixed(0)} s`;
  if (value < 5400) return `${(value / 60).toFixed(0)} min`;
  if (value < 129600) return `${(value / 3600).toFixed(0)} h`;
  return `${(value / 86400).toFixed(0)} days`;
}

export const count = (value) => (value == null ? "–" : value.toLocaleString("en"));
