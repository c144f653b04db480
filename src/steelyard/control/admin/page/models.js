// A card per model: its numbers now, and the lines of the last minutes.

import { Chart } from "./charts.js";
import { byId, count, element, named, rate, say, seconds } from "./words.js";

const MOST_CHARTS = 12; // models; of more, only numbers are shown until one is chosen
const NUMBERS = ["rate", "p50", "p99", "waiting", "running", "replicas"];

class Card {
  constructor(model, changePolicy) {
    this.latency = new Chart("Latency", [
      { class: "one", label: "p50", of: (pulse) => pulse.p50 }, { class: "two", label: "p99", of: (pulse) => pulse.p99 },
    ], seconds);
    this.throughput = new Chart("Requests a second", [
      { class: "area", label: "all", of: (pulse) => pulse.rate }, { class: "bad", label: "bad: late, failed or refused", of: (pulse) => pulse.bad },
    ], (value) => rate(value ?? 0));
    this.queue = new Chart("Queue", [
      { class: "area", label: "waiting", of: (pulse) => pulse.waiting }, { class: "two", label: "running", of: (pulse) => pulse.in_flight },
    ], (value) => count(Math.round(value ?? 0)));
    this.parts = {};
    const numbers = NUMBERS.map((name) => this.number(name));
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

  update(view, pulses, promised, chartsShown) {
    const pulse = view.pulse;
    const share = pulse.rate ? (100 * pulse.bad) / pulse.rate : 0;
    this.set("rate", "requests/s", rate(pulse.rate), pulse.bad ? `${share.toFixed(share < 10 ? 1 : 0)} % bad` : "", pulse.bad ? "warn" : "");
    this.set("p50", "p50", seconds(pulse.p50));
    const late = promised !== null && pulse.p99 > promised;
    this.set("p99", "p99", seconds(pulse.p99), promised === null ? "" : `promised ${seconds(promised)}`, late ? "warn" : "");
    this.set("waiting", "waiting", count(pulse.waiting), pulse.waiting ? `oldest ${seconds(view.oldest)}` : "");
    this.set("running", "running", count(pulse.in_flight), pulse.work ? `${seconds(pulse.work)} of work` : "");
    const missing = view.ready === 0 ? "bad" : view.ready < view.replicas ? "warn" : "";
    const wanted = view.wanted === null ? "" : `${view.wanted} wanted`;
    this.set("replicas", "ready", `${view.ready}/${view.replicas}`, wanted, missing);
    say(this.policy, `Policy: ${view.policy}`);
    this.policy.setAttribute("aria-label", `Policy of ${view.model}: ${view.policy}. Change it`);
    this.charts.hidden = !chartsShown;
    if (!chartsShown) return;
    this.latency.draw(pulses, promised);
    this.throughput.draw(pulses);
    this.queue.draw(pulses);
  }
}

export class Models {
  constructor(choose, changePolicy) {
    this.choose = choose;
    this.changePolicy = changePolicy;
    this.cards = new Map();
    this.tabs = new Map();
  }

  update(state, chosen) {
    const names = state.models.map((view) => view.model);
    this.tab("", "All models", chosen, state.models.length > 1);
    for (const view of state.models) {
      this.tab(view.model, named(view.model), chosen, state.models.length > 1);
      if (!this.cards.has(view.model)) {
        const card = new Card(view.model, this.changePolicy);
        this.cards.set(view.model, card);
        byId("numbers").append(card.node);
      }
      const card = this.cards.get(view.model);
      card.node.hidden = Boolean(chosen) && chosen !== view.model;
      const charts = view.model === chosen || state.models.length <= MOST_CHARTS;
      if (!card.node.hidden) card.update(view, state.pulses.get(view.model) ?? [], promised(state, view.model), charts);
    }
    for (const gone of [...this.cards.keys()].filter((name) => !names.includes(name))) {
      this.cards.get(gone).node.remove();
      this.cards.delete(gone);
      this.tabs.get(gone)?.remove();
      this.tabs.delete(gone);
    }
  }

  tab(model, label, chosen, shown) {
    let tab = this.tabs.get(model);
    if (!tab) {
      tab = element("button", { type: "button", "data-model": model, onclick: () => this.choose(model) }, label);
      this.tabs.set(model, tab);
      byId("models").append(tab);
    }
    tab.hidden = !shown;
    tab.setAttribute("aria-pressed", String(chosen === model));
  }
}

// The latency promised to those who are no tenant with a promise of their own.
function promised(state, model) {
  const slo = state.slo.find((view) => view.model === model && view.tenant === "") ?? state.slo.find((view) => view.model === model);
  return slo?.objectives.find((objective) => objective.kind === "latency")?.latency ?? null;
}

