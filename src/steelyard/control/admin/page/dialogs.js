// Asking before something is changed, and telling what became of it.

import { byId, say, show } from "./words.js";

const NOTICE_MILLISECONDS = 6000;

let asked = null; // what is done on "yes"
let fading = 0;

export function prepare() {
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  for (const dialog of document.querySelectorAll("dialog:not(#token)")) {
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  byId("token").addEventListener("cancel", (event) => event.preventDefault());
  byId("confirm").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    carryOut();
  });
}

// `work` does it and gives one sentence of what is true then.
export function confirm(title, words, verb, work) {
  asked = work;
  say(byId("confirm-title"), title);
  say(byId("confirm-words"), words);
  say(byId("confirm-do"), verb);
  show(byId("confirm-problem"), false);
  byId("confirm-do").disabled = false;
  byId("confirm").showModal();
  byId("confirm-do").focus();
}

async function carryOut() {
  const work = asked;
  byId("confirm-do").disabled = true;
  try {
    const outcome = await work();
    byId("confirm").close();
    tell(outcome);
  } catch (problem) {
    say(byId("confirm-problem"), problem.message);
    show(byId("confirm-problem"), true);
    byId("confirm-do").disabled = false;
  }
}

export function tell(text) {
  const box = byId("outcome");
  // What is in a modal dialog lies above all else: the outcome must lie in it too.
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  say(box, text);
  show(box, true);
  clearTimeout(fading);
  fading = setTimeout(() => show(box, false), NOTICE_MILLISECONDS);
}
