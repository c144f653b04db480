// One replica: everything that is known of it, why it is as it is, and what can be done to it.

import { call, modelPath, replicaPath } from "./api.js";
import { confirm } from "./dialogs.js";
import { byId, bytes, count, element, named, plural, say, seconds, show, span, STATES } from "./words.js";

const BALANCER_COLUMNS = ["state", "external_load", "limit", "effective_weight", "consecutive_failures", "consecutive_ejections", "p50", "p99"];
const DURATION_COLUMNS = new Set(["p50", "p99"]);

export class Replica {
  constructor(lookup) {
    this.lookup = lookup; // model → its live view
    this.view = null;
    byId("drain").addEventListener("click", () => this.drain());
    byId("unweigh").addEventListener("click", () => this.weigh(null));
    byId("weigh").addEventListener("submit", (event) => {
      event.preventDefault();
      this.weigh(Number(byId("weight").value));
    });
    byId("replica").addEventListener("close", () => { this.view = null; });
    byId("replica-log").addEventListener("toggle", () => this.refresh());
  }

  async open(model, id) {
    this.view = { model, id };
    say(byId("replica-title"), id);
    say(byId("replica-reason"), "");
    byId("replica-facts").replaceChildren();
    byId("replica-balancer").querySelector("table").replaceChildren();
    show(byId("replica-log"), false);
    byId("replica-log").open = false;
    say(byId("replica-log").querySelector("pre"), "");
    show(byId("replica-problem"), false);
    this.able(false);
    byId("weight").value = "";
    byId("replica").showModal();
    if (await this.refresh()) byId("weight").value = this.view.weight;
    byId("drain").focus();
  }

  // Also every second while it is open.
  async refresh() {
    const wanted = this.view;
    if (!wanted || this.asking) return false;
    this.asking = true;
    try {
      const view = await call("GET", replicaPath(wanted.model, wanted.id));
      if (this.view?.id !== wanted.id || this.view.model !== wanted.model) return false;
      this.view = view;
      this.show(view);
      show(byId("replica-log"), view.source === "runtime");
      if (view.source === "runtime" && byId("replica-log").open) await this.log(view);
      show(byId("replica-problem"), false);
      return true;
    } catch (problem) {
      say(byId("replica-problem"), problem.message);
      show(byId("replica-problem"), true);
      return false;
    } finally {
      this.asking = false;
    }
  }

  show(view) {
    const word = STATES[view.state]?.[1] ?? view.state;
    say(byId("replica-title"), `${view.id} — ${word}`);
    say(byId("replica-reason"), `${word} for ${span(view.state_age)}${view.reason ? `: ${view.reason}` : ""}`);
    this.able(true);
    say(byId("drain"), view.draining ? "Undrain…" : "Drain…");
    const list = byId("replica-facts");
    const rows = facts(view);
    rows.forEach(([name, text], place) => {
      if (!list.children[2 * place]) list.append(element("dt"), element("dd"));
      say(list.children[2 * place], name);
      say(list.children[2 * place + 1], text);
    });
    while (list.children.length > 2 * rows.length) list.lastChild.remove();
    decidedBy(view, byId("replica-balancer").querySelector("table"));
  }

  async log(view) {
    const { lines } = await call("GET", `${replicaPath(view.model, view.id)}/log?lines=100`);
    const pre = byId("replica-log").querySelector("pre");
    const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
    say(pre, lines.join("\n") || "It has printed nothing.");
    if (atEnd) pre.scrollTop = pre.scrollHeight; // not while the user has scrolled up to read
  }

  // Nothing can be done to a replica of which nothing is known yet.
  able(known) {
    for (const control of [byId("drain"), ...byId("weigh").elements]) control.disabled = !known;
  }

  drain() {
    const { model, id, draining, in_flight: running, state } = this.view;
    const path = replicaPath(model, id);
    if (draining) {
      const words = `Undrain ${id}: it gets requests again as soon as it is ready.`;
      return confirm(`Undrain ${id}?`, words, "Undrain", () => this.change("POST", `${path}/undrain`, undefined, `${id} gets requests again`));
    }
    const there = running ? `${plural(running, "request")} that ${running === 1 ? "runs" : "run"} there ${running === 1 ? "is" : "are"} finished` : "nothing runs there now";
    const last = state === "ready" && this.lookup(model)?.ready === 1 ? ` It is the only ready replica of ${named(model)}: requests will wait, or be refused.` : "";
    const later = " It stays drained when its server restarts, until you undrain it; only a restart of the gateway forgets that.";
    confirm(`Drain ${id}?`, `Drain ${id}: it gets no new requests; ${there}.${last}${later}`, "Drain", () =>
      this.change("POST", `${path}/drain`, undefined, `${id} gets no new requests`));
  }

  weigh(weight) {
    const { model, id, weight: before } = this.view;
    const words = weight === null
      ? `Weight of ${id}: what the configuration says, instead of ${before}.`
      : `Weight of ${id} from ${before} to ${weight}: it then counts as ${weight} times as large as a replica of weight 1. It holds until a restart.`;
    confirm(`Change the weight of ${id}?`, words, "Change", async () => {
      const outcome = await this.change("PATCH", replicaPath(model, id), { weight }, "");
      if (this.view) byId("weight").value = this.view.weight;
      return outcome || `${id} has the weight ${this.view?.weight ?? weight}`;
    });
  }

  async change(method, path, body, outcome) {
    const view = await call(method, path, body);
    if (this.view?.id === view.id) {
      this.view = view;
      this.show(view);
    }
    return outcome;
  }
}

export class Policy {
  constructor(lookup) {
    this.lookup = lookup;
    byId("policy").querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(byId("policy-name").value);
    });
  }

  async open(model) {
    this.model = model;
    this.names ??= await call("GET", "/ui/policies.json");
    const now = this.lookup(model)?.policy;
    say(byId("policy-title"), `Policy of ${named(model)}`);
    const names = this.names.includes(now) ? this.names : [now, ...this.names];
    const choices = names.map((name) => element("option", { value: name }, name === now ? `${name} (now)` : name));
    byId("policy-name").replaceChildren(...choices, element("option", { value: "" }, "as the configuration says"));
    byId("policy-name").value = now;
    byId("policy").showModal();
  }

  ask(name) {
    const model = this.model;
    const before = this.lookup(model)?.policy;
    const words = name
      ? `${named(model)}: the next request goes where ${name} says, instead of ${before}. Its options are at their defaults; requests under way are not moved.`
      : `${named(model)}: policy and options are again what the configuration says.`;
    byId("policy").close();
    confirm(`Change the policy of ${named(model)}?`, words, "Change", async () => {
      const body = name ? { policy: name, policy_options: {} } : { policy: null, policy_options: null };
      const view = await call("PATCH", modelPath(model), body);
      return `${named(model)} uses ${view.policy}`;
    });
  }
}

function facts(view) {
  const rows = [
    ["model", named(view.model)], ["address", view.url], ["known from", view.source],
    ["running", `${plural(view.in_flight, "request")}, ${seconds(view.work)} of work`],
    ["sent so far", `${plural(view.dispatched, "request")}, ${count(view.failures)} failed`],
    ["in the last minute", attempts(view.recent)], ["slowness", slowness(view)], ["weight", String(view.weight)],
  ];
  if (view.device) rows.push(["device", view.device]);
  if (view.zone) rows.push(["zone", view.zone]);
  if (view.lease !== null) rows.push(["lease", `${span(view.lease)} left`]);
  if (view.probe) rows.push(["probes", probes(view.probe)]);
  if (view.probe?.restarts) rows.push(["restarts seen", count(view.probe.restarts)]);
  if (view.load_signals) rows.push(["reported load", signals(view.load_signals)]);
  return rows;
}

function attempts({ seconds: covered, attempts: ended, failed, last_error: error, last_error_age: age }) {
  const over = covered < 55 ? ` in ${span(covered)}` : "";
  const last = age === null ? "" : `; the last error was ${error}, ${span(age)} ago`;
  return `${count(failed)} of ${plural(ended, "attempt")} failed${over}${last}`;
}

function slowness({ slowness: value, slowness_samples: samples, slowness_age: age }) {
  const evidence = samples ? `${plural(samples, "answer")}, the last ${span(age)} ago` : "no answers yet";
  return value === null ? `not known: ${evidence}` : `${value.toFixed(2)} s here for 1 s on a typical replica (${evidence})`;
}

function probes(probe) {
  const when = probe.age === null ? "none yet" : `${probe.result} ${span(probe.age)} ago, in ${seconds(probe.seconds)}`;
  const row = probe.consecutive_failures ? `; ${probe.consecutive_failures} bad in a row` : `; ${probe.consecutive_successes} good in a row, ${probe.required_successes} needed`;
  return `${when}${probe.message ? `: ${probe.message}` : ""}${row}`;
}

function signals(load) {
  if (load.problem) return load.problem;
  if (load.age === null) return "nothing yet";
  const parts = [];
  if (load.running !== null) parts.push(`${load.running} running`);
  if (load.waiting !== null) parts.push(`${load.waiting} waiting`);
  if (load.cache !== null) {
    const size = load.kv_tokens === null ? "" : ` of ${Math.round(load.kv_tokens)} tokens`;
    parts.push(`cache ${Math.round(100 * load.cache)} %${size} full`);
  }
  if (load.preempted) parts.push(`${load.preempted} preempted`);
  if (load.utilization !== null) parts.push(`${Math.round(100 * load.utilization)} % busy`);
  if (load.memory_used !== null) parts.push(`memory ${bytes(load.memory_used)}`);
  return `${parts.join(", ") || "nothing"} (${span(load.age)} ago${load.stale ? ", too old to be used" : ""})`;
}

function decidedBy(view, table) {
  if (!table.rows.length) {
    table.append(element("tr", {}, ...BALANCER_COLUMNS.map((name) => element("th", { scope: "col" }, name.replace("_", " ")))));
    table.append(element("tr", {}, ...BALANCER_COLUMNS.map(() => element("td"))));
  }
  BALANCER_COLUMNS.forEach((name, column) => say(table.rows[1].cells[column], cell(name, view.balancer?.[name] ?? null)));
}

function cell(name, value) {
  if (value === null || (value === 0 && name[0] === "p" && DURATION_COLUMNS.has(name))) return "–";
  if (DURATION_COLUMNS.has(name)) return seconds(value);
  return typeof value === "number" && !Number.isInteger(value) ? value.toFixed(2) : String(value);
}
