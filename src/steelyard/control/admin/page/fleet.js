// The fleet map: a tile per replica, updated in place, so that many hundred of them stay quick.

import { byId, bytes, count, element, named, plural, say, seconds, show, STATES } from "./words.js";

const DENSE = 60; // replicas, from which on tiles say less
const TINY = 240;
const SLOW = 1.5; // times the seconds of a typical replica

const key = (view) => JSON.stringify([view.model, view.id]);

class Tile {
  constructor(view, open) {
    this.badge = element("span", { class: "badge", "aria-hidden": "true" });
    this.name = element("span", { class: "name" }, view.id);
    this.fill = element("i");
    this.says = element("span", { class: "says" });
    this.node = element(
      "button", { type: "button", tabindex: "-1", "data-model": view.model, "data-replica": view.id, onclick: () => open(view.model, view.id) },
      this.badge, this.name, element("span", { class: "bar" }, this.fill), this.says,
    );
  }

  update(view, most) {
    const [letter, word] = STATES[view.state] ?? ["?", view.state];
    const kind = `tile ${view.state}${view.slowness >= SLOW && view.state === "ready" ? " slow" : ""}`;
    if (this.node.className !== kind) this.node.className = kind;
    say(this.badge, letter);
    const load = `${seconds(view.work)} of work · ${count(view.in_flight)} running`;
    const pace = view.p99 ? `p99 ${seconds(view.p99)}` : "";
    const slow = view.slowness >= SLOW ? `${view.slowness.toFixed(1)}× slow` : "";
    const weight = view.weight === 1 ? "" : `weight ${+view.weight.toFixed(2)}`;
    const state = view.state === "ready" ? "" : word;
    const text = [state, load, pace, slow, weight].filter(Boolean).join(" · ");
    say(this.says, text);
    this.fill.style.setProperty("width", `${Math.min(100, (100 * view.work) / most).toFixed(1)}%`);
    const label = `${view.id}, ${word}, ${text}`;
    if (this.label !== label) {
      this.label = label;
      this.node.setAttribute("aria-label", label);
      this.node.title = `${view.id} (${named(view.model)}): ${word}\n${text}`;
    }
  }
}

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
    const ours = Math.max(0, device.taken - device.other);
    this.fill.style.setProperty("width", `${Math.min(100, (100 * ours) / device.capacity)}%`);
    this.other.style.setProperty("left", `${Math.min(100, (100 * ours) / device.capacity)}%`);
    this.other.style.setProperty("width", `${(100 * device.other) / device.capacity}%`);
    this.bar.className = `bar ${device.taken > device.budget ? "out" : device.taken > 0.9 * device.budget ? "low" : ""}`;
    say(this.says, `memory ${bytes(device.taken)} of ${bytes(device.budget)} given out${device.measured === null ? "" : `, ${bytes(device.measured)} measured`}`);
  }
}

export class Fleet {
  constructor(open) {
    this.open = open;
    this.map = byId("map");
    this.tiles = new Map();
    this.groups = new Map();
    this.current = null; // the tile that Tab leads to
    this.map.addEventListener("keydown", (event) => this.move(event));
    this.map.addEventListener("focusin", (event) => this.lead(event.target.closest(".tile")));
    for (const [state, [letter, word]] of Object.entries(STATES)) {
      byId("legend").append(element("span", { class: state }, element("span", { class: "badge", "aria-hidden": "true" }, letter), word));
    }
  }

  update(state, chosen, words) {
    const shown = state.replicas.filter((view) => (!chosen || view.model === chosen) && matches(view, words));
    const most = Math.max(1, ...shown.map((view) => view.work));
    const size = shown.length > TINY ? "tiny" : shown.length > DENSE ? "dense" : "";
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
    for (const [name, group] of this.groups) if (!places.has(group)) { group.node.remove(); this.groups.delete(name); }
    if (!this.current) this.lead(this.map.querySelector(".tile"));
    this.count(shown, state.replicas.length);
  }

  count(shown, all) {
    const ready = shown.filter((view) => view.state === "ready").length;
    const some = shown.length === all ? "" : ` of ${all}`;
    say(byId("map-count"), `${plural(shown.length, "replica")}${some}, ${count(ready)} ready; bars: seconds of work there`);
    for (const node of byId("legend").children) show(node, shown.some((view) => node.classList.contains(view.state)));
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
