// A card per model: its numbers now, and the lines of the last minutes. Of many models, a line each.

import { Chart, Spark } from "./charts.js";
import { byId, count, element, exact, named, rate, say, seconds, show } from "./words.js";

const MAX_MODEL_TABS = 8; // of more, one is chosen in the overview
const MAX_MODEL_CARDS = 2; // more are a line each, until one is chosen
const CARD_NUMBERS = ["rate", "p50", "p99", "waiting", "running", "replicas"];

class Card {
  constructor(model, changePolicy) {
    this.latency = new Chart("Latency", [
      { class: "two", label: "p99", filled: true, of: (sample) => sample.p99 }, { class: "one", label: "p50", of: (sample) => sample.p50 },
    ], (value) => (value === 0 ? "0" : exact(value)));
    this.throughput = new Chart("Requests a second", [
      { class: "area", label: "all", filled: true, of: (sample) => sample.rate },
      { class: "bad", label: "late, failed or refused", filled: true, sparse: true, of: (sample) => sample.bad_rate },
    ], (value) => (Number.isInteger(value) ? count(value) : rate(value ?? 0)), 2);
    this.queue = new Chart("Running and waiting", [
      { class: "area", label: "running", filled: true, of: (sample) => sample.in_flight },
      { class: "wait", label: "waiting", filled: true, sparse: true, of: (sample) => sample.waiting },
    ], (value) => count(Math.round(value ?? 0)), 2);
    this.parts = {};
    const numbers = CARD_NUMBERS.map((name) => this.number(name));
    this.policy = element("button", { type: "button", class: "policy", onclick: () => changePolicy(model) });
    this.charts = element("div", { class: "charts" }, this.latency.node, this.throughput.node, this.queue.node);
    this.node = element(
      "article", { class: "card model", "data-model": model, "aria-label": `Model ${model}` },
      element("div", { class: "line" }, element("h2", {}, named(model)), element("span", { class: "grow" }), this.policy),
      element("div", { class: "numbers" }, ...numbers), this.charts,
    );
  }

  number(name) {
    const part = (this.parts[name] = { label: element("span"), value: element("strong"), more: element("small") });
    part.node = element("div", { class: "number", "data-number": name }, part.label, part.value, part.more);
    return part.node;
  }

  set(name, label, value, more = "", mood = "") {
    const part = this.parts[name];
    say(part.label, label);
    say(part.value, value);
    say(part.more, more);
    part.node.className = `number ${mood}`;
  }

  update(view, samples, objective) {
    const sample = view.sample;
    const share = sample.rate ? (100 * sample.bad_rate) / sample.rate : 0;
    this.set("rate", "requests/s", rate(sample.rate), sample.bad_rate ? `${share.toFixed(share < 10 ? 1 : 0)} % bad` : "", sample.bad_rate ? "warn" : "");
    this.set("p50", "p50", seconds(sample.p50));
    const late = objective !== null && sample.p99 > objective;
    this.set("p99", "p99", seconds(sample.p99), objective === null ? "" : `SLO ${exact(objective)}`, late ? "warn" : "");
    this.set("waiting", "waiting", count(sample.waiting), sample.waiting ? `oldest ${seconds(view.oldest_wait)}` : "");
    this.set("running", "running", count(sample.in_flight), sample.work ? `${seconds(sample.work)} of work` : "");
    const failing = view.failing ? `${count(view.failing)} failing` : "";
    const more = [failing, desired(view)].filter(Boolean).join(", ");
    this.set("replicas", "ready", `${view.ready}/${view.replicas}`, more, missing(view));
    say(this.policy, `Policy: ${view.policy}`);
    this.policy.setAttribute("aria-label", `Policy of ${view.model}: ${view.policy}. Change it`);
    this.latency.draw(samples, objective);
    this.throughput.draw(samples);
    this.queue.draw(samples);
  }
}

// None there and none desired is as it should be.
const missing = (view) => (view.desired === 0 && view.replicas === 0 ? "" : view.ready === 0 ? "bad" : view.ready < view.replicas || view.failing ? "warn" : "");

function desired(view) {
  if (view.desired === null) return "";
  return view.desired === 0 && view.replicas === 0 ? "scaled to zero" : `${view.desired} desired`;
}

const COLUMNS = ["model", "requests/s", "", "p50", "p99", "", "waiting", "running", "ready", "policy"];

// A line of the overview.
class Row {
  constructor(model, choose, changePolicy) {
    this.rate = new Spark("area", (sample) => sample.rate);
    this.p99 = new Spark("two", (sample) => sample.p99);
    this.name = element("button", { type: "button", class: "link", title: `Only ${named(model)}`, onclick: () => choose(model) }, named(model));
    this.policy = element("button", { type: "button", class: "link quiet", onclick: () => changePolicy(model) });
    const parts = [this.name, "", this.rate.node, "", "", this.p99.node, "", "", "", this.policy];
    this.node = element("tr", { "data-model": model }, ...parts.map((part) => element("td", {}, part)));
  }

  update(view, samples, objective) {
    const sample = view.sample;
    const waits = sample.waiting ? `${count(sample.waiting)}, oldest ${seconds(view.oldest_wait)}` : "0";
    const asleep = view.desired === 0 && view.replicas === 0;
    this.set(1, sample.bad_rate ? `${rate(sample.rate)}, ${rate(sample.bad_rate)} bad` : rate(sample.rate), sample.bad_rate ? "warn" : "");
    this.set(3, seconds(sample.p50));
    this.set(4, seconds(sample.p99), objective !== null && sample.p99 > objective ? "warn" : "");
    this.set(6, waits, sample.waiting ? "warn" : "");
    this.set(7, count(sample.in_flight));
    const more = view.desired === null || view.desired === view.replicas ? "" : ` → ${view.desired}`;
    const failing = view.failing ? `, ${count(view.failing)} failing` : "";
    this.set(8, asleep ? "scaled to zero" : `${view.ready}/${view.replicas}${more}${failing}`, asleep ? "quiet" : missing(view));
    say(this.policy, view.policy);
    this.policy.setAttribute("aria-label", `Policy of ${view.model}: ${view.policy}. Change it`);
    this.rate.draw(samples);
    this.p99.draw(samples);
  }

  set(place, text, mood = "") {
    say(this.node.cells[place], text);
    this.node.cells[place].className = mood;
  }
}

class Overview {
  constructor(choose, changePolicy) {
    this.make = (model) => new Row(model, choose, changePolicy);
    this.rows = new Map();
    this.body = element("tbody");
    const titles = COLUMNS.map((name) => element("th", { scope: "col" }, name));
    this.node = element("article", { class: "card overview", "aria-label": "All models" }, element("table", {}, element("thead", {}, element("tr", {}, ...titles)), this.body));
  }

  update(state) {
    const names = new Set(state.models.map((view) => view.model));
    for (const [name, row] of this.rows) if (!names.has(name)) { row.node.remove(); this.rows.delete(name); }
    for (const view of state.models) {
      let row = this.rows.get(view.model);
      if (!row) {
        this.rows.set(view.model, (row = this.make(view.model)));
        this.body.append(row.node);
      }
      row.update(view, state.samples.get(view.model) ?? [], objective(state, view.model));
    }
  }
}

export class Models {
  constructor(choose, changePolicy) {
    this.choose = choose;
    this.changePolicy = changePolicy;
    this.cards = new Map();
    this.tabs = new Map();
    this.overview = new Overview((model) => this.alone(model), changePolicy);
    this.empty = element("article", { class: "card empty", hidden: "" }, element("p", {}, "No model is configured."));
    byId("numbers").append(this.overview.node, this.empty);
  }

  update(state, chosen) {
    const names = state.models.map((view) => view.model);
    const lines = !chosen && state.models.length > MAX_MODEL_CARDS;
    const tabs = state.models.length > 1;
    this.tab("", "All models", chosen, tabs);
    show(this.overview.node, lines);
    show(this.empty, !state.models.length);
    if (lines) this.overview.update(state);
    for (const view of state.models) {
      this.tab(view.model, named(view.model), chosen, tabs && (state.models.length <= MAX_MODEL_TABS || chosen === view.model));
      if (!this.cards.has(view.model)) {
        const card = new Card(view.model, this.changePolicy);
        this.cards.set(view.model, card);
        byId("numbers").append(card.node);
      }
      const card = this.cards.get(view.model);
      show(card.node, !lines && (!chosen || chosen === view.model));
      if (!card.node.hidden) card.update(view, state.samples.get(view.model) ?? [], objective(state, view.model));
    }
    for (const gone of [...this.cards.keys()].filter((name) => !names.includes(name))) {
      this.cards.get(gone).node.remove();
      this.cards.delete(gone);
      this.tabs.get(gone)?.remove();
      this.tabs.delete(gone);
    }
  }

  // The line that was clicked is gone then: the focus goes to the tab.
  alone(model) {
    this.choose(model);
    this.tabs.get(model).focus();
  }

  tab(model, label, chosen, shown) {
    let tab = this.tabs.get(model);
    if (!tab) {
      tab = element("button", { type: "button", "data-model": model, title: label, onclick: () => this.choose(model) }, label);
      this.tabs.set(model, tab);
      byId("models").append(tab);
    }
    tab.hidden = !shown;
    tab.setAttribute("aria-pressed", String(chosen === model));
  }
}

// The latency SLO of requests without a tenant that has its own.
function objective(state, model) {
  const slo = state.slo.find((view) => view.model === model && view.tenant === "") ?? state.slo.find((view) => view.model === model);
  return slo?.objectives.find((one) => one.kind === "latency")?.latency ?? null;
}

