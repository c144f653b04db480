// The fleet map: a tile per replica, updated in place, so that many hundred of them stay quick.

import { byId, bytes, count, element, named, plural, say, seconds, show, span, STATES } from "./words.js";

const DENSE_ABOVE_REPLICAS = 60; // then tiles say less
const TINY_ABOVE_REPLICAS = 240;
const SLOW_FROM_FACTOR = 1.5; // × the time of a typical replica

const key = (view) => JSON.stringify([view.model, view.id]);

class Tile {
  constructor(view, open) {
    this.badge = element("span", { class: "badge", "aria-hidden": "true" });
    this.name = element("span", { class: "name" }, view.id);
    this.fill = element("i");
    this.says = element("span");
    this.slow = element("span", { class: "pace" });
    this.node = element(
      "button", { type: "button", tabindex: "-1", "data-model": view.model, "data-replica": view.id, onclick: () => open(view.model, view.id) },
      this.badge, this.name, element("span", { class: "bar" }, this.fill), element("span", { class: "says" }, this.says, " ", this.slow),
    );
  }

  update(view, most) {
    const [letter, word] = STATES[view.state] ?? ["?", view.state];
    const failing = view.state !== "ready" || !(view.recent.failed || view.recent.failing) ? "" : view.recent.failing ? " failing" : " some-fail";
    const kind = `tile ${view.state}${failing}${view.slowness >= SLOW_FROM_FACTOR && view.state === "ready" ? " slow" : ""}`;
    if (this.node.className !== kind) this.node.className = kind;
    say(this.badge, failing ? "!" : letter);
    const text = said(view, word);
    say(this.says, text.replace(/(\d) (m?s)\b/g, "$1\u00a0$2").replace("p99 ", "p99\u00a0")); // a number stays with its unit
    say(this.slow, view.slowness >= SLOW_FROM_FACTOR && !failing ? `${view.slowness.toFixed(1)}× slow` : "");
    this.fill.style.setProperty("width", `${Math.min(100, (100 * view.work) / most).toFixed(1)}%`);
    const label = [view.id, word, text, this.slow.textContent].filter(Boolean).join(", ");
    if (this.label !== label) {
      this.label = label;
      this.node.setAttribute("aria-label", label);
      const evidence = this.slow.textContent ? `${this.slow.textContent}: ${plural(view.slowness_samples, "answer")}` : "";
      this.node.title = `${view.id} (${named(view.model)}): ${word}\n${text} ${evidence}`;
    }
  }
}

// What runs there; of one that gets nothing, why not.
function said(view, word) {
  const running = view.in_flight ? `${count(view.in_flight)} running, ${seconds(view.work)} of work` : "";
  const weight = view.weight === 1 ? "" : `weight ${+view.weight.toFixed(2)}`;
  if (view.state !== "ready") return [running, view.reason ? `${word}: ${view.reason}` : word, weight].filter(Boolean).join(" · ");
  return [failures(view.recent), running || "idle", view.p99 ? `p99 ${seconds(view.p99)}` : "", weight].filter(Boolean).join(" · ");
}

// Of the last minute's attempts; and the last error, with its age.
function failures(recent) {
  if (!recent.failed && !recent.failing) return "";
  const last = recent.last_error_age === null ? "" : ` (${recent.last_error}, ${span(recent.last_error_age)} ago)`;
  return `${count(recent.failed)} of ${count(recent.attempts)} failed${last}`;
}

// What should serve and does not, or fails, comes first.
const UNHEALTHY_STATES = new Set(["ejected", "unreachable", "loading", "starting"]);
const health = (view) => (UNHEALTHY_STATES.has(view.state) || view.recent.failing ? 0 : view.recent.failed ? 1 : 2);

class Group {
  constructor() {
    this.title = element("h3");
    this.fill = element("i");
    this.other = element("i", { class: "other" });
    this.bar = element("span", { class: "bar" }, this.fill, this.other);
    this.says = element("span", { class: "quiet" });
    this.memory = element("span", { class: "memory" }, this.bar);
    this.tiles = element("div", { class: "tiles" });
    this.node = element("div", { class: "group" }, element("div", { class: "line" }, this.title, this.memory, this.says), this.tiles);
  }

  head(title, device) {
    say(this.title, title);
    show(this.memory, Boolean(device?.capacity));
    if (!device?.capacity) return say(this.says, "");
    const ours = Math.max(0, device.committed - device.external_usage);
    const share = (size) => `${Math.min(100, (100 * size) / device.budget)}%`;
    this.fill.style.setProperty("width", share(ours));
    this.other.style.setProperty("left", share(ours));
    this.other.style.setProperty("width", share(device.external_usage));
    this.bar.className = `bar ${device.committed > device.budget ? "out" : device.committed > 0.9 * device.budget ? "low" : ""}`;
    const measured = device.measured === null ? "" : `, ${bytes(device.measured)} measured`;
    say(this.says, `${bytes(device.committed)} of ${bytes(device.budget)} memory committed${measured}`);
  }
}

export class Fleet {
  constructor(open) {
    this.open = open;
    this.map = byId("map");
    this.tiles = new Map();
    this.groups = new Map();
    this.current = null; // the tile that Tab leads to
    this.none = element("p", { class: "quiet", hidden: "" });
    this.map.before(this.none);
    this.map.addEventListener("keydown", (event) => this.move(event));
    this.map.addEventListener("focusin", (event) => this.lead(event.target.closest(".tile")));
    for (const [state, [letter, word]] of Object.entries(STATES)) {
      byId("legend").append(element("span", { class: state }, element("span", { class: "badge", "aria-hidden": "true" }, letter), word));
    }
    this.failing = element("span", { class: "ready failing", hidden: "" }, element("span", { class: "badge", "aria-hidden": "true" }, "!"), "fails attempts");
    byId("legend").append(this.failing);
  }

  update(state, chosen, words) {
    const shown = state.replicas.filter((view) => (!chosen || view.model === chosen) && matches(view, words));
    shown.sort((one, other) => health(one) - health(other));
    const most = Math.max(1, ...shown.map((view) => view.work));
    const size = shown.length > TINY_ABOVE_REPLICAS ? "tiny" : shown.length > DENSE_ABOVE_REPLICAS ? "dense" : "";
    if (this.map.className !== size) this.map.className = size;
    const devices = new Map(state.devices.map((device) => [device.device, device]));
    const seen = new Set(shown.map(key));
    for (const [name, tile] of this.tiles) if (!seen.has(name)) this.forget(name, tile);
    const places = new Map(); // group → how many of its tiles are in their place
    for (const view of shown) {
      const group = this.group(view, devices, places);
      const { node } = this.tile(view, most);
      const place = places.get(group);
      if (group.tiles.children[place] !== node) group.tiles.insertBefore(node, group.tiles.children[place] ?? null);
      places.set(group, place + 1);
    }
    for (const [name, group] of this.groups) {
      if (places.has(group)) group.node.style.setProperty("--many", places.get(group));
      else { group.node.remove(); this.groups.delete(name); }
    }
    show(this.none, !shown.length);
    say(this.none, state.replicas.length ? "No replica fits." : "There are no replicas yet.");
    if (!this.current) this.lead(this.map.querySelector(".tile"));
    this.count(shown, state.replicas.length);
  }

  count(shown, all) {
    const ready = shown.filter((view) => view.state === "ready").length;
    const failing = shown.filter((view) => view.state === "ready" && (view.recent.failed || view.recent.failing)).length;
    const some = shown.length === all ? "" : ` of ${all}`;
    const fails = failing ? `, ${count(failing)} of them with failures` : "";
    say(byId("map-count"), `${plural(shown.length, "replica")}${some}, ${count(ready)} ready${fails}; bars: seconds of work there`);
    for (const node of byId("legend").children) if (node !== this.failing) show(node, shown.some((view) => node.classList.contains(view.state)));
    show(this.failing, failing > 0);
  }

  group(view, devices, places) {
    const name = view.device ? `device ${view.device}` : `model ${view.model}`;
    let group = this.groups.get(name);
    if (!group) {
      group = new Group();
      this.groups.set(name, group);
      this.map.append(group.node);
    }
    if (places.has(group)) return group;
    group.head(view.device || named(view.model), devices.get(view.device));
    places.set(group, 0);
    return group;
  }

  tile(view, most) {
    let tile = this.tiles.get(key(view));
    if (!tile) this.tiles.set(key(view), (tile = new Tile(view, this.open)));
    tile.update(view, most);
    return tile;
  }

  forget(name, tile) {
    if (this.current === tile.node) this.current = null;
    tile.node.remove();
    this.tiles.delete(name);
  }

  lead(node) {
    if (!node || node === this.current) return;
    this.current?.setAttribute("tabindex", "-1");
    this.current = node;
    node.setAttribute("tabindex", "0");
  }

  focus() {
    (this.current ?? this.map).focus();
  }

  move(event) {
    const from = event.target.closest(".tile");
    if (!from || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...this.map.querySelectorAll(".tile")];
    const to = target(all, from, event.key);
    if (to === undefined) return;
    event.preventDefault();
    to?.focus();
  }
}

function matches(view, words) {
  const text = [view.id, view.state, view.device, view.zone, view.model].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

// undefined: no key of ours; null: there is none.
function target(all, from, pressed) {
  const here = all.indexOf(from);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[pressed];
  if (step) return all[here + step] ?? null;
  if (pressed === "Home") return all[0];
  if (pressed === "End") return all.at(-1);
  if (pressed !== "ArrowDown" && pressed !== "ArrowUp") return undefined;
  const box = from.getBoundingClientRect();
  const order = pressed === "ArrowDown" ? all.slice(here + 1) : all.slice(0, here).reverse();
  let row = null;
  let best = null;
  for (const node of order) {
    const other = node.getBoundingClientRect();
    if (Math.abs(other.top - box.top) < 2) continue;
    row ??= other.top;
    if (Math.abs(other.top - row) > 2) break;
    const far = Math.abs(other.left - box.left);
    if (!best || far < best.far) best = { node, far };
  }
  return best?.node ?? null;
}
