// SLOs and their error budgets; alarms; events.

import { ago, byId, count, element, exact, named, percent, plural, say, show, span } from "./words.js";

const MAX_EVENTS_KEPT = 300;
const MAX_EVENTS_SHOWN = 120;
const MAX_OBJECTIVES_SHOWN = 40;
const MAX_MET_OBJECTIVES_SHOWN = 8; // without an alert
const MAX_OBJECTIVES_EXPANDED = 4; // with all their windows
const MAX_ALARMS_SHOWN = 3; // the rest is folded
const ALERTS = { page: "look now", ticket: "look soon", "": "met" };

function words(objective) {
  const share = percent(objective.target);
  if (objective.kind === "availability") return `${share} of requests are answered`;
  const within = objective.latency === null ? [] : [`answered within ${exact(objective.latency)}`];
  if (objective.first_byte !== null) within.push(`begun to be answered within ${exact(objective.first_byte)}`);
  if (objective.per_token !== null) within.push(`written within ${exact(objective.per_token)} a token`);
  return `${share} of requests are ${within.join(" or ")}`;
}

// No longer than anything is known of.
function over({ seconds: length, covered_seconds: covered }) {
  if (covered === null) return `in ${span(length)}`;
  const since = new Date(Date.now() - 1000 * covered);
  const clock = since.toLocaleString([], { ...(covered > 72000 ? { month: "short", day: "numeric" } : {}), hour: "2-digit", minute: "2-digit" });
  return `since ${clock} (${span(covered)})`;
}

class Objective {
  constructor() {
    this.scope = element("span", { class: "scope" });
    this.title = element("strong");
    this.mark = element("span");
    this.fill = element("i");
    this.bar = element("span", { class: "bar" }, this.fill);
    this.budget = element("span");
    this.spent = element("span", { class: "quiet" });
    this.table = element("table");
    this.more = element("details", {}, element("summary", {}, "by window"), this.table);
    this.node = element(
      "div", { class: "objective" },
      element("div", { class: "line" }, element("span", {}, this.scope, this.title), element("span", { class: "grow" }), this.mark),
      this.bar, element("div", { class: "left" }, this.budget, this.spent), this.more,
    );
  }

  update(scope, objective, few) {
    say(this.scope, scope);
    say(this.title, words(objective));
    const left = objective.error_budget_remaining;
    // No alert does not mean met: a budget may be exhausted though it burns slowly now.
    say(this.mark, !objective.alert && left < 0 ? "overspent" : ALERTS[objective.alert] ?? objective.alert);
    this.mark.className = `mark ${objective.alert || (left < 0 ? "ticket" : "fine")}`;
    this.fill.style.setProperty("width", `${Math.max(0, Math.min(100, 100 * left))}%`);
    this.bar.className = `bar ${left <= 0 ? "out" : left < 0.25 ? "low" : ""}`;
    say(this.budget, left < 0 ? `error budget overspent by ${Math.round(-100 * left)} %` : `${Math.floor(100 * left)} % of the error budget left`);
    const { good, bad } = objective.budget;
    say(this.spent, `${count(bad)} of ${plural(good + bad, "request")} were bad ${over(objective.budget)}`);
    const open = few || Boolean(objective.alert);
    if (this.open !== open) this.more.open = this.open = open; // and then as the reader likes it
    this.rows(objective.windows, objective.target);
  }

  rows(windows, target) {
    if (this.table.rows.length !== 3) {
      const row = (title) => element("tr", {}, element("th", { scope: "row" }, title));
      this.table.replaceChildren(row("last"), row("attainment"), row("burn rate"));
    }
    const cells = [windows.map((window) => span(window.covered_seconds ?? window.seconds)), windows.map((window) => percent(window.attainment)), windows.map((window) => `${window.burn_rate.toFixed(1)}×`)];
    cells.forEach((texts, number) => {
      const row = this.table.rows[number];
      while (row.cells.length <= texts.length) row.append(element("td"));
      texts.forEach((text, place) => say(row.cells[place + 1], text));
      // Of two windows of which the same is known, one says it all.
      windows.forEach((window, place) => show(row.cells[place + 1], place === 0 || (windows[place - 1].covered_seconds ?? null) === null));
    });
    windows.forEach((window, place) => { this.table.rows[1].cells[place + 1].className = window.attainment !== null && window.attainment < target ? "under" : ""; });
  }
}

export class Slos {
  constructor() {
    this.made = new Map();
    this.none = element("p", { class: "quiet" });
    byId("slo").append(this.none);
  }

  update(state, chosen) {
    const wanted = [];
    for (const slo of state.slo) {
      if (chosen && slo.model !== chosen) continue;
      const scope = [chosen || state.models.length < 2 ? "" : named(slo.model), slo.tenant ? `tenant ${slo.tenant}` : ""].filter(Boolean).join(" · ");
      for (const objective of slo.objectives) wanted.push([JSON.stringify([slo.model, slo.tenant, objective.kind]), scope, objective]);
    }
    const rank = ([, , { alert, error_budget_remaining: left }]) => ({ page: 0, ticket: 1 })[alert] ?? (left < 0 ? 2 : 3);
    wanted.sort((one, other) => rank(one) - rank(other));
    const troubled = wanted.filter((entry) => rank(entry) < 3).length;
    const shown = wanted.slice(0, Math.min(MAX_OBJECTIVES_SHOWN, Math.max(MAX_MET_OBJECTIVES_SHOWN, troubled)));
    const keys = new Set(shown.map(([key]) => key));
    for (const [key, made] of this.made) if (!keys.has(key)) { made.node.remove(); this.made.delete(key); }
    shown.forEach(([key, scope, objective], place) => {
      let made = this.made.get(key);
      if (!made) this.made.set(key, (made = new Objective()));
      made.update(scope, objective, wanted.length <= MAX_OBJECTIVES_EXPANDED);
      if (byId("slo").children[place] !== made.node) byId("slo").insertBefore(made.node, byId("slo").children[place] ?? null);
    });
    const more = wanted.length - shown.length;
    say(this.none, more ? `and ${more} more${troubled <= shown.length ? ", all met" : ""}` : "No SLO is configured: set slo of a model.");
    show(this.none, !shown.length || more > 0);
  }
}

export function alarms(state) {
  const box = byId("alarms");
  const about = JSON.stringify(state.alarms.map(({ code, model, replica, subject }) => [code, model, replica, subject]));
  // Only a new alarm is announced by a screen reader, not a new number in it.
  if (about !== box.dataset.shown) {
    box.dataset.shown = about;
    const lines = state.alarms.map(({ severity }) => element("p", { class: `alarm ${severity}` }, element("span", { "aria-live": "off" }), element("span", { class: "quiet", "aria-live": "off" })));
    const more = lines.slice(MAX_ALARMS_SHOWN);
    const open = box.querySelector("details")?.open ? { open: "" } : {};
    const folded = more.length ? [element("details", open, element("summary", {}, plural(more.length, "more alarm")), ...more)] : [];
    box.replaceChildren(...lines.slice(0, MAX_ALARMS_SHOWN), ...folded);
  }
  const lines = box.querySelectorAll(".alarm");
  state.alarms.forEach((alarm, number) => {
    say(lines[number].firstChild, alarm.message);
    say(lines[number].lastChild, alarm.age < 1 ? "" : `for ${span(alarm.age)}`);
  });
}

export class Events {
  constructor() {
    this.all = [];
    this.filter = "";
  }

  // The first list after a connection is all there is: it takes the place of what is known.
  add(events, fresh) {
    if (fresh) this.clear();
    const now = performance.now() / 1000;
    for (const event of events) {
      const time = element("time");
      const subject = [event.model, event.replica].filter(Boolean).join(" / ");
      const node = element("li", {}, time, element("span", {}, ...(subject ? [element("strong", {}, subject), " "] : []), event.message));
      this.all.push({ ...event, at: now - event.age, node, time });
      byId("events").prepend(node);
    }
    while (this.all.length > MAX_EVENTS_KEPT) this.all.shift().node.remove();
  }

  clear() {
    this.all = [];
    byId("events").replaceChildren();
  }

  update(chosen, wanted) {
    const now = performance.now() / 1000;
    let shown = 0;
    for (const event of [...this.all].reverse()) {
      const text = `${event.model} ${event.replica} ${event.kind} ${event.message}`.toLowerCase();
      const fits = (!chosen || !event.model || event.model === chosen) && wanted.every((word) => text.includes(word));
      const visible = fits && shown < MAX_EVENTS_SHOWN;
      show(event.node, visible);
      if (!visible) continue;
      shown += 1;
      say(event.time, ago(now - event.at));
    }
  }
}
