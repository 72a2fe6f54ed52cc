// The work itself: replace this file by what your worker does. Here, it posts the
// job to WORK_URL and takes the answer's body as the result. Without a WORK_URL, the
// result is the input.
//
// work is called at most once for an attempt. It returns how that ended:
//
//	{ outcome: "succeeded", result }        result is JSON, as text
//	{ outcome: "unsent", failure }          provably nothing was sent
//	{ outcome: "failed", failure }          known not to have given a usable result
//	{ outcome: "unknown", failure }         nobody can tell
//
// What it throws counts as unknown, which is the truth of most errors: the other
// side may have done the work all the same. It must end soon after signal does,
// and must not repeat a call by itself.
//
// JSON.parse rounds numbers beyond 2^53. Where that matters, have them sent as text.

const notConnected = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]);
// Refused without any effect, and how far that reaches: no provider will take this
// request, this provider takes none, or it is worth another try.
const refusals = new Map([
  ...[400, 404, 405, 413, 415, 422].map((status) => [status, "request"]),
  ...[401, 403].map((status) => [status, "provider"]),
  [429, "transient"],
]);

export async function work(job, signal) {
  if (!process.env.WORK_URL) return { outcome: "succeeded", result: JSON.stringify(job.input) };
  let response;
  try {
    response = await fetch(process.env.WORK_URL, {
      method: "POST",
      redirect: "manual", // following one would be a second call
      signal,
      headers: {
        "Content-Type": "application/json",
        "Idempotency-Key": job.job_id,
        "Ledger-Job-Id": job.job_id,
        "Ledger-Attempt": String(job.attempt),
      },
      body: JSON.stringify(job),
    });
  } catch (err) {
    if (!notConnected.has(err.cause?.code)) throw err;
    return { outcome: "unsent", failure: { class: "connect", message: err.cause.code, executed: false, reach: "transient" } };
  }
  const text = await response.text();
  const failure = { class: `http_${response.status}`, message: `the endpoint answered ${response.status}`, executed: true };
  if (refusals.has(response.status)) {
    return { outcome: "failed", failure: { ...failure, executed: false, reach: refusals.get(response.status) } };
  }
  if (response.status !== 200 && response.status !== 201) return { outcome: "unknown", failure };
  try {
    JSON.parse(text);
  } catch {
    return { outcome: "failed", failure: { class: "invalid_result", message: "the answer is not JSON", executed: true, reach: "transient" } };
  }
  return { outcome: "succeeded", result: text };
}
