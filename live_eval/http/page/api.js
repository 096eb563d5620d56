// Asking the service. Every failure is an ApiError that says what, and what to do.

const TIMEOUT_MS = 20000;
export const API = 'api/v1/';

export class ApiError extends Error {
  constructor(status, { code = '', what = '', value = null, what_to_do: whatToDo = '' } = {}) {
    super(what || `the service answered with status ${status}`);
    Object.assign(this, { status, code, value, whatToDo });
  }
}

const unreachable = () =>
  new ApiError(0, { code: 'unreachable', what: 'the service cannot be reached', what_to_do: 'see whether its process runs; the page tries again by itself' });

async function answer(request) {
  let response;
  try {
    response = await request;
  } catch (error) {
    if (error.name === 'TimeoutError') throw new ApiError(0, { code: 'timeout', what: 'the service did not answer in 20 s' });
    throw unreachable();
  }
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  if (response.status === 401) document.dispatchEvent(new CustomEvent('needs-token'));
  throw new ApiError(response.status, body?.error);
}

const options = { credentials: 'same-origin', cache: 'no-store', redirect: 'error' };

/** GET api/v1/PATH. Parameters that are null are left out; lists are given once for each value. */
export function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of [value].flat()) if (each !== null && each !== undefined && each !== '') query.append(name, each);
  const url = API + path + (String(query) && `?${query}`);
  return answer(fetch(url, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) }));
}

export function post(path, body) {
  return answer(
    fetch(API + path, {
      ...options,
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }),
  );
}

/** All items of a list, page by page; `each` is told of every page. At most `most`, the last ones. */
export async function getAll(path, parameters, each, most) {
  const limit = 500;
  let page = await get(path, { ...parameters, limit, offset: 0 });
  let offset = Math.max(0, page.total - most);
  if (offset > 0) page = await get(path, { ...parameters, limit, offset });
  while (true) {
    each(page.items);
    offset += page.items.length;
    if (page.items.length === 0 || offset >= page.total) return;
    page = await get(path, { ...parameters, limit, offset });
  }
}

/** A job id in a path: its slash stays. */
export const jobPath = (jobId) => jobId.split('/').map(encodeURIComponent).join('/');
