// The admin API. The token is kept for this tab only, and is sent nowhere but to where the page came from.

const TOKEN_KEY = "steelyard-token";

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(TOKEN_KEY);
export const keepToken = (given) => sessionStorage.setItem(TOKEN_KEY, given);
export const dropToken = () => sessionStorage.removeItem(TOKEN_KEY);

export function headers() {
  return token() ? { authorization: `Bearer ${token()}` } : {};
}

export async function failure(answer) {
  let message = `the gateway answered ${answer.status}`;
  try {
    message = (await answer.json()).error.message;
  } catch { /* it is no answer of the API: the status has to do */ }
  return new Failure(answer.status, message);
}

export async function call(method, path, body) {
  const options = { method, headers: headers(), cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Failure(0, "the gateway does not answer: nothing is known of whether it was done");
  }
  if (!answer.ok) throw await failure(answer);
  return answer.status === 204 ? null : answer.json();
}

export const modelPath = (model) => `/v1/models/${encodeURIComponent(model)}`;
export const replicaPath = (model, id) => `${modelPath(model)}/replicas/${encodeURIComponent(id)}`;
