// Lines over the last minutes, as SVG that is drawn once and then only given new paths.

import { element, say, span } from "./words.js";

export const SECONDS = 300;
const SHORTEST = 60; // seconds that a chart shows, however little is known yet
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;

// `lines`: [{class, label, of: pulse => number | null}]; `limit`: a level to draw across.
export class Chart {
  constructor(title, lines, shown) {
    this.lines = lines;
    this.shown = shown;
    this.title = title;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.paths = lines.map((line) => this.path(line.class));
    this.limit = this.path("limit");
    this.top = element("span");
    this.back = element("span", { class: "back" });
    this.limitKey = element("span", { class: "key limit", hidden: "" });
    const keys = lines.map((line) => element("span", { class: `key ${line.class}` }, line.label));
    this.node = element(
      "figure", { class: "chart" },
      element("figcaption", {}, element("strong", {}, title), ...(lines.length > 1 ? keys : []), this.limitKey),
      element("div", { class: "plot" }, this.svg, this.top, this.back),
    );
  }

  path(kind) {
    const made = document.createElementNS(SVG, "path");
    made.setAttribute("class", kind);
    this.svg.append(made);
    return made;
  }

  draw(pulses, limit = null) {
    const values = this.lines.map((line) => pulses.map(line.of));
    const highest = Math.max(0, ...values.flat().filter((value) => value != null));
    // A limit far above all would press the lines flat: then it is only told.
    const drawn = limit !== null && limit < highest * 4;
    const top = nice(Math.max(highest, drawn ? limit * 1.05 : 0));
    const end = pulses.length ? pulses[pulses.length - 1].at : 0;
    const wide = Math.min(SECONDS, Math.max(SHORTEST, end - (pulses[0]?.at ?? end)));
    const place = (at) => WIDTH * (1 - (end - at) / wide);
    this.lines.forEach((line, number) => {
      const closed = line.class === "area" || line.class === "bad";
      this.paths[number].setAttribute("d", trace(pulses, values[number], place, top, closed));
    });
    const level = HEIGHT * (1 - limit / top);
    this.limit.setAttribute("d", drawn && top ? `M0 ${level.toFixed(1)}H${WIDTH}` : "");
    this.limitKey.hidden = limit === null;
    if (limit !== null) say(this.limitKey, `promised ${this.shown(limit)}`);
    say(this.back, `last ${span(wide)}`);
    say(this.top, top ? this.shown(top) : "");
    const last = this.lines.map((line, number) => `${line.label} ${this.shown(values[number].at(-1) ?? null)}`);
    this.svg.setAttribute("aria-label", `${this.title}, the last ${span(wide)}; now ${last.join(", ")}`);
  }
}

function trace(pulses, values, place, top, closed) {
  let path = "";
  let from = null;
  let x = 0;
  const end = () => { if (closed && from !== null) path += `L${x} ${HEIGHT}L${from} ${HEIGHT}Z`; from = null; };
  values.forEach((value, number) => {
    // A second without an answer is no latency of zero: the line has a gap there.
    if (value == null || (number && pulses[number].at - pulses[number - 1].at > 5)) end();
    if (value == null) return;
    x = place(pulses[number].at).toFixed(1);
    const y = (HEIGHT * (1 - (top ? value / top : 0)) * 0.98 + 1).toFixed(1);
    path += `${from === null ? "M" : "L"}${x} ${y}`;
    from ??= x;
  });
  end();
  return path;
}

function nice(value) {
  if (value <= 0) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].find((step) => step * unit >= value) * unit;
}
