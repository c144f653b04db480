// The page: the state of the gateway goes to every part of it, once a second.

import { dropToken, keepToken, token } from "./api.js";
import { CHART_SECONDS } from "./charts.js";
import { prepare } from "./dialogs.js";
import { Fleet } from "./fleet.js";
import { Live } from "./live.js";
import { Models } from "./models.js";
import { alarms, Events, Slos } from "./slos.js";
import { Policy, Replica } from "./replica.js";
import { byId, plural, say, show, span } from "./words.js";

const THEMES = ["system", "dark", "light"];
const samples = new Map(); // model → the last minutes
let state = null; // the last one received
let chosen = ""; // model; empty: all
let fresh = true; // the next state is the first of its connection

const lookup = (model) => state?.models.find((view) => view.model === model);
const replica = new Replica(lookup);
const policy = new Policy(lookup);
const fleet = new Fleet((model, id) => replica.open(model, id));
const models = new Models(choose, (model) => policy.open(model));
const slos = new Slos();
const events = new Events();
const live = new Live(received, connectionChanged);

function received(kind, view) {
  if (kind === "history") {
    fresh = true;
    samples.clear();
    // What is stored of the time before a restart knows nothing of what ran or waited: charts have a gap there.
    for (const [model, list] of Object.entries(view.stored)) samples.set(model, list);
    for (const [model, list] of Object.entries(view.samples)) samples.set(model, [...(samples.get(model) ?? []), ...list]);
  } else if (kind === "state") {
    for (const model of view.models) keep(model.model, model.sample);
    events.add(view.events, fresh);
    fresh = false;
    state = { ...view, samples };
    if (chosen && !lookup(chosen)) chosen = "";
    if (!document.hidden) draw();
    if (byId("replica").open) replica.refresh();
  }
}

function keep(model, sample) {
  const list = samples.get(model) ?? [];
  if (list.length && sample.uptime <= list.at(-1).uptime) return;
  samples.set(model, [...list, sample].filter((one) => one.uptime > sample.uptime - CHART_SECONDS));
}

function draw() {
  if (!state) return;
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  say(byId("version"), state.version);
  say(byId("uptime"), `up ${span(state.uptime)}`);
  say(byId("workers"), plural(state.workers, "worker"));
  alarms(state);
  models.update(state, chosen);
  fleet.update(state, chosen, words);
  slos.update(state, chosen);
  events.update(chosen, words);
}

function connectionChanged(connection) {
  const kind = connection.state === "refused" ? "lost" : connection.state;
  if (document.body.dataset.connection !== kind) document.body.dataset.connection = kind;
  show(byId("retry"), connection.state === "lost");
  say(byId("connection"), connected(connection));
  if (connection.state === "refused" && !byId("token").open) askToken(connection.reason);
}

function connected({ state, age, again, reason }) {
  const since = age == null ? "" : `; numbers are ${span(age)} old`;
  if (state === "live") return "live";
  if (state === "stale") return `stale: nothing new for ${span(age)}`;
  if (state === "lost") return `${reason}${since}; reconnecting in ${Math.ceil(again)} s`;
  return state === "refused" ? "a token is needed" : "connecting…";
}

function askToken(reason) {
  const wrong = token() !== null;
  dropToken();
  say(byId("token-problem"), `That did not work: ${reason}.`);
  show(byId("token-problem"), wrong);
  byId("token-given").value = "";
  byId("token").showModal();
}

function choose(model) {
  chosen = model;
  draw();
}

function turn(step) {
  const names = ["", ...(state?.models ?? []).map((view) => view.model)];
  choose(names[(names.indexOf(chosen) + step + names.length) % names.length]);
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  localStorage.setItem("steelyard-theme", next);
  say(byId("theme-name"), next);
}

const turnTheme = () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
const KEYS = {
  "?": () => byId("keys").showModal(),
  "/": () => byId("filter").focus(),
  m: () => fleet.focus(),
  t: turnTheme,
  "[": () => turn(-1),
  "]": () => turn(1),
};

function pressed(event) {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && event.target === byId("filter")) {
    byId("filter").value = "";
    byId("filter").blur();
    return draw();
  }
  if (typing || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

prepare();
theme(THEMES.includes(localStorage.getItem("steelyard-theme")) ? localStorage.getItem("steelyard-theme") : "system");
byId("theme").addEventListener("click", turnTheme);
byId("help").addEventListener("click", KEYS["?"]);
byId("retry").addEventListener("click", () => live.retry());
byId("filter").addEventListener("input", draw);
document.addEventListener("keydown", pressed);
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });
byId("token").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token-given").value.trim());
  byId("token").close();
  live.start();
});
live.start();
