// Calls of the service.

/** An error response of the service, or an error of the page. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const TOKEN = "posh-token";
let askForToken = async () => false;

/** `ask(message)` is called when a token is needed, and resolves to a token or null. */
export function onTokenNeeded(ask) {
  askForToken = async (message) => {
    const token = await ask(message);
    if (token) sessionStorage.setItem(TOKEN, token);
    return Boolean(token);
  };
}

/** Call the service: GET without a body, else POST or `method`. Errors are problems with the service's message. */
export async function call(path, body, signal, method = body ? "POST" : "GET") {
  const isFile = body instanceof Blob;
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...(token && { authorization: `Bearer ${token}` }) };
  if (body) headers["content-type"] = isFile ? "application/octet-stream" : "application/json";
  const answer = await fetchFrom(path, {
    method,
    headers,
    body: isFile || !body ? body : JSON.stringify(body),
    signal,
  });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  const detail = problem.detail ?? `the service answered ${answer.status}`;
  if (answer.status === 401 && (await askForToken(token ? detail : ""))) return call(path, body, signal, method);
  throw new Problem(answer.status, detail);
}

async function fetchFrom(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The service cannot be reached. Is it still running?");
  }
}

const of = (name, verb) => `v1/collections/${encodeURIComponent(name)}/${verb}`;

export const collections = async () => (await call("v1/collections")).collections;
export const items = (name, body) => call(of(name, "items"), body);
export const get = (name, body, signal) => call(of(name, "get"), body, signal);
export const search = (name, body, signal) => call(of(name, "search"), body, signal);
export const fields = (name) => call(of(name, "fields"));
export const map = (name) => call(of(name, "map"));
export const upsert = (name, body) => call(of(name, "upsert"), body);
export const readFile = (file) => call(`v1/read?name=${encodeURIComponent(file.name)}`, file);
export const create = (name, body) => call(`v1/collections/${encodeURIComponent(name)}`, body, undefined, "PUT");

/** The limits of the service, from its description. */
export async function limits() {
  const { Search, Upsert } = (await call("openapi.json")).components.schemas;
  return { k: Search.properties.k.maximum, items: Upsert.properties.ids.maxItems };
}
