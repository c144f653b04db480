// What happens, as it happens: Server-Sent Events read by hand, because EventSource cannot send a token.

import { failure, headers } from "./api.js";

const CHECK_MILLISECONDS = 500;
const STALE_AFTER_SECONDS = 3.5;
const DISCONNECT_AFTER_SECONDS = 8;
const MAX_RECONNECT_SECONDS = 2; // a gateway that comes back is seen within 3 s
const MAX_EVENT_CHARS = 64 << 20;

const now = () => performance.now() / 1000;

// `onConnection(state)` is called at least twice a second: {state: live | stale | lost | connecting | refused, age, again, reason}.
export class Live {
  constructor(onEvent, onConnection) {
    this.onEvent = onEvent;
    this.onConnection = onConnection;
    this.last = null; // when the last state came
    this.again = 0; // when it is tried again; 0: it is being tried, or open
    this.failed = 0; // tries in a row
    this.reason = "";
    this.refused = null;
    this.stopping = null;
    setInterval(() => this.look(), CHECK_MILLISECONDS);
  }

  start() {
    this.refused = null;
    this.failed = 0;
    this.again = 0;
    this.stopping?.abort();
    this.read();
  }

  async read() {
    const stopping = (this.stopping = new AbortController());
    this.opened = now();
    try {
      const answer = await fetch("/v1/live", { headers: headers(), signal: stopping.signal, cache: "no-store" });
      if (!answer.ok) throw await failure(answer);
      await this.follow(answer.body.getReader());
      this.reason = "the gateway ended the connection";
    } catch (problem) {
      if (stopping !== this.stopping) return;
      if (problem.status === 401) this.refused = problem;
      this.reason = problem.status ? problem.message : "the gateway does not answer";
    }
    if (stopping !== this.stopping) return;
    this.failed += 1;
    this.again = now() + Math.min(MAX_RECONNECT_SECONDS, 2 ** (this.failed - 1)) * (0.8 + 0.4 * Math.random());
    this.look();
  }

  async follow(reader) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        this.take(text.slice(0, end));
        text = text.slice(end + 2);
      }
      if (text.length > MAX_EVENT_CHARS) throw new Error("an event without an end");
    }
  }

  take(block) {
    let kind = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
    }
    if (!data.length) return;
    this.failed = 0;
    if (kind === "state") this.last = now();
    this.onEvent(kind, JSON.parse(data.join("\n")));
    this.look();
  }

  look() {
    const at = now();
    if (this.refused) return this.onConnection({ state: "refused", reason: this.refused.message });
    const age = this.last === null ? null : at - this.last;
    if (this.again) {
      if (at >= this.again && !document.hidden) this.retry();
      return this.onConnection({ state: "lost", age, again: Math.max(0, this.again - at), reason: this.reason });
    }
    if (at - Math.max(this.last ?? 0, this.opened ?? at) > DISCONNECT_AFTER_SECONDS) {
      this.stopping.abort();
      this.stopping = null;
      this.reason = "nothing came for a while";
      this.again = at + 1;
    }
    if (age === null) return this.onConnection({ state: "connecting" });
    return this.onConnection({ state: age > STALE_AFTER_SECONDS || this.opened > this.last ? "stale" : "live", age });
  }

  retry() {
    this.again = 0;
    this.stopping?.abort();
    this.read();
  }
}
