// Lines over the last minutes, as SVG that is drawn once and then only given new paths.

import { element, say, span } from "./words.js";

export const CHART_SECONDS = 300;
const MIN_CHART_SECONDS = 60; // however little is known yet
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const VIEW_WIDTH = 300;
const VIEW_HEIGHT = 100;

// `lines`: [{class, label, of: sample => number | null, sparse}]; a sparse one is not drawn where it is 0 for long.
export class Chart {
  constructor(title, lines, shown, least = 0) {
    this.lines = lines;
    this.shown = shown;
    this.least = least; // of the scale
    this.title = title;
    this.svg = document.createElementNS(SVG_NAMESPACE, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${VIEW_WIDTH} ${VIEW_HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.fills = lines.map((line) => this.path(`fill ${line.class}`));
    this.paths = lines.map((line) => this.path(line.class));
    this.limit = this.path("limit");
    this.scale = [element("span"), element("span"), element("span")];
    this.back = element("span");
    this.none = element("p", { class: "none" }, "nothing yet");
    this.limitKey = element("span", { class: "key limit", hidden: "" });
    const keys = lines.map((line) => element("span", { class: `key ${line.class}` }, line.label));
    this.node = element(
      "figure", { class: "chart" },
      element("figcaption", {}, element("strong", {}, title), ...(lines.length > 1 ? keys : []), this.limitKey),
      element("div", { class: "plotted" },
        element("div", { class: "scale", "aria-hidden": "true" }, ...this.scale),
        element("div", { class: "plot" }, this.svg, this.none),
        element("div", { class: "time", "aria-hidden": "true" }, this.back, element("span", {}, "now"))),
    );
  }

  path(kind) {
    const made = document.createElementNS(SVG_NAMESPACE, "path");
    made.setAttribute("class", kind);
    this.svg.append(made);
    return made;
  }

  draw(samples, limit = null) {
    const values = this.lines.map((line) => (line.sparse ? sparse(samples.map(line.of)) : samples.map(line.of)));
    const highest = Math.max(0, ...values.flat().filter((value) => value != null));
    // A limit far above all would press the lines flat: then only text shows it.
    const drawn = limit !== null && limit < highest * 4;
    const top = nice(Math.max(highest, this.least, drawn ? limit * 1.05 : 0));
    const end = samples.length ? samples[samples.length - 1].uptime : 0;
    const wide = Math.min(CHART_SECONDS, Math.max(MIN_CHART_SECONDS, end - (samples[0]?.uptime ?? end)));
    const place = (at) => VIEW_WIDTH * (1 - (end - at) / wide);
    this.lines.forEach((line, number) => {
      this.paths[number].setAttribute("d", trace(samples, values[number], place, top, false));
      if (line.filled) this.fills[number].setAttribute("d", trace(samples, values[number], place, top, true));
    });
    const level = VIEW_HEIGHT * (1 - limit / top);
    this.limit.setAttribute("d", drawn && top ? `M0 ${level.toFixed(1)}H${VIEW_WIDTH}` : "");
    this.limitKey.hidden = limit === null;
    if (limit !== null) say(this.limitKey, `SLO ${this.shown(limit)}`);
    say(this.back, `${span(wide)} ago`);
    [top, top / 2, 0].forEach((level, number) => say(this.scale[number], top ? this.shown(level) : ""));
    this.none.hidden = values.some((list) => list.some((value) => value != null));
    const last = this.lines.map((line, number) => `${line.label} ${this.shown(values[number].at(-1) ?? null)}`);
    this.svg.setAttribute("aria-label", `${this.title}, the last ${span(wide)}; now ${last.join(", ")}`);
  }
}

function trace(samples, values, place, top, closed) {
  let path = "";
  let from = null;
  let x = 0;
  const end = () => { if (closed && from !== null) path += `L${x} ${VIEW_HEIGHT}L${from} ${VIEW_HEIGHT}Z`; from = null; };
  values.forEach((value, number) => {
    // A second without an answer is no latency of zero: the line has a gap there.
    if (value == null || (number && samples[number].uptime - samples[number - 1].uptime > 5)) end();
    if (value == null) return;
    x = place(samples[number].uptime).toFixed(1);
    const y = (VIEW_HEIGHT * (1 - (top ? value / top : 0))).toFixed(1);
    path += `${from === null ? "M" : "L"}${x} ${y}`;
    from ??= x;
  });
  end();
  return path;
}

// Zeros next to something else stay: from there the line rises.
function sparse(values) {
  return values.map((value, number) => (value || values[number - 1] || values[number + 1] ? value : null));
}

// The end of a scale whose half is easily read, too.
function nice(value) {
  if (value <= 0) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 6, 8].find((step) => step * unit >= value) ?? 10) * unit;
}

// A line alone, as high as the highest of its own.
export class Spark {
  constructor(kind, of) {
    this.of = of;
    this.node = document.createElementNS(SVG_NAMESPACE, "svg");
    this.node.setAttribute("viewBox", `0 0 ${VIEW_WIDTH} ${VIEW_HEIGHT}`);
    this.node.setAttribute("preserveAspectRatio", "none");
    this.node.setAttribute("aria-hidden", "true");
    this.node.setAttribute("class", "spark");
    this.paths = [`fill ${kind}`, kind].map((name) => {
      const made = this.node.appendChild(document.createElementNS(SVG_NAMESPACE, "path"));
      made.setAttribute("class", name);
      return made;
    });
  }

  draw(samples) {
    const values = samples.map(this.of);
    const end = samples.at(-1)?.uptime ?? 0;
    const wide = Math.min(CHART_SECONDS, Math.max(MIN_CHART_SECONDS, end - (samples[0]?.uptime ?? end)));
    const place = (at) => VIEW_WIDTH * (1 - (end - at) / wide);
    const top = Math.max(0, ...values) * 1.1;
    this.paths.forEach((path, number) => path.setAttribute("d", trace(samples, values, place, top, !number)));
  }
}
