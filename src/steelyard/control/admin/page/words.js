// Numbers and states in words, and elements made without markup: whatever a name holds, it is only text.

export const STATES = {
  ready: ["R", "ready"], starting: ["S", "starting"], loading: ["L", "loading its model"], unloaded: ["O", "model not loaded"],
  draining: ["D", "draining"], ejected: ["E", "ejected"], unreachable: ["U", "unreachable"],
};

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

export function seconds(value) {
  if (value == null || !isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (Math.abs(value) < 0.0095) return `${(value * 1000).toFixed(1)} ms`;
  if (Math.abs(value) < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (Math.abs(value) < 9.95) return `${value.toFixed(2)} s`;
  return span(value);
}

// A configured value, as a person would write it: 1.5 s, not 1.50 s.
export function exact(value) {
  return seconds(value).replace(/\.(\d*?)0+ s$/, (_, kept) => (kept ? `.${kept} s` : " s"));
}

export function span(value) {
  const whole = Math.max(0, Math.round(value));
  if (whole < 120) return `${whole} s`;
  if (whole < 3600) return `${Math.round(whole / 60)} min`;
  if (whole < 172800) return `${+(whole / 3600).toFixed(1)} h`;
  return `${Math.round(whole / 86400)} days`;
}

export function rate(value) {
  if (value >= 9.95) return count(Math.round(value));
  return value === 0 ? "0" : value.toFixed(1);
}

export const count = (value) => value.toLocaleString("en");

export function percent(value) {
  if (value == null) return "–";
  // 99.996 is not 100: what is broken a little must not look whole.
  const digits = value > 99.9 && value < 100 ? 3 : value > 99 && value < 100 ? 2 : 1;
  const factor = 10 ** digits;
  return `${+(Math.floor(value * factor + 1e-6) / factor).toFixed(digits)} %`;
}

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
  return `${value < 10 && place ? value.toFixed(1) : Math.round(value)} ${units[place]}`;
}

export function ago(value) {
  return value < 2 ? "now" : `${span(value).replace(" days", " d")}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const named = (model) => (model === "*" ? "any model (*)" : model);
