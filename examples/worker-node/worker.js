// A worker for the job ledger in another language: the official NATS client and
// nothing of the ledger's own. The protocol is in docs/contract.md, "The worker
// protocol"; the numbers below are its steps.
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, createInbox, headers, nanos } from "@nats-io/transport-node";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { work } from "./work.js";

const { NATS_URL = "nats://127.0.0.1:4222", LEDGER_STREAM = "LEDGER", LEDGER_PREFIX = "ledger" } = process.env;
const provider = process.env.LEDGER_PROVIDER; // required
const concurrency = Number(process.env.LEDGER_CONCURRENCY ?? 4);
const graceMs = Number(process.env.LEDGER_GRACE_MS ?? 20_000); // for what runs when the worker is told to exit
if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(provider ?? "")) throw new Error("LEDGER_PROVIDER names no provider");

const name = `${hostname()}/${process.pid}`;
const nc = await connect({
  servers: NATS_URL.split(","), user: process.env.NATS_USER, pass: process.env.NATS_PASSWORD, inboxPrefix: process.env.NATS_INBOX, name,
  maxReconnectAttempts: -1, waitOnFirstConnect: true, reconnectTimeWait: 250, pingInterval: 5_000,
});
nc.closed().then((err) => { // for good: NATS lets us in no more
  log("the connection is closed", err);
  process.exit(1);
});
const largest = Math.min(nc.info.max_payload, 1 << 20) - 8_192; // a result, in bytes; later there may be no nc.info
const js = jetstream(nc, { timeout: 5_000 });
const subject = (what) => `${LEDGER_PREFIX}.${what}.${provider}`;
const log = (text, err) => console.error(new Date().toISOString(), text, err?.message ?? "");
const jitter = (ms) => ms / 2 + (Math.random() * ms) / 2;
const failure = (kind, message) => ({ class: kind, message: `the provider was not called: ${message}`, executed: false, reach: "transient" });

const held = new Map(); // start message -> when it is dealt with
const running = new Map(); // "<job>/<attempt>" -> what ends its call
const stopping = new AbortController(); // nothing is claimed any more
const leaving = new AbortController(); // nothing can be recorded any more
let lost = 0; // completions that could not be recorded

// 1. A durable consumer, which all workers of the provider share. Deliveries have
// no limit: a start that was dropped would be a job that waits for ever.
async function open() {
  const jsm = await jetstreamManager(nc);
  await jsm.consumers.add(LEDGER_STREAM, {
    durable_name: `worker-${provider}`, description: `Starts of attempts for the workers of provider ${provider}`,
    filter_subject: subject("attempt.start"), ack_policy: AckPolicy.Explicit, ack_wait: nanos(30_000), max_deliver: -1, max_ack_pending: 65_536,
  });
  return js.consumers.get(LEDGER_STREAM, `worker-${provider}`);
}

// A slot works on one start at a time, and fetches none ahead.
async function slot(consumer) {
  while (!stopping.signal.aborted) {
    try {
      const msg = await consumer.next({ expires: 30_000 });
      if (!msg) continue;
      if (stopping.signal.aborted) return msg.nak();
      held.set(msg, carryOut(msg));
      await held.get(msg).catch((err) => { // a start that a newer worker may be able to read
        log("a start that cannot be worked on", err);
        msg.nak(60_000);
      });
      held.delete(msg);
    } catch (err) { // the server is away, or the consumer is gone
      log("no start could be fetched; it is tried again", err);
      await pause(jitter(1_000));
      consumer = await open().catch(() => consumer);
    }
  }
}

async function carryOut(msg) {
  const start = JSON.parse(msg.string());
  if (start.v !== 1) throw new Error(`its version is ${start.v}`);
  const { job, attempt, job_version } = start;
  const claim = { v: 1, job, attempt, job_version, claim: randomBytes(16).toString("hex") }; // new for each delivery
  const began = { wall: Date.now(), mono: performance.now() }; // before the claim is published
  // Wall time goes on while the machine sleeps; monotonic time cannot be set back.
  const since = () => Math.max(Date.now() - began.wall, performance.now() - began.mono);
  const margin = (timeout) => Math.min(Math.max(timeout / 20, 10), 2_000, timeout / 2);

  const patience = Math.min(start.timeout_ms - margin(start.timeout_ms), 300_000);
  const answer = await decided({ ...claim, worker: name, start_seq: msg.seq }, () => patience - since());
  if (!answer) {
    // Should the claim be accepted later, the attempt is not left running with
    // nobody. Should it never have been stored, the start must come again.
    await complete(claim, { outcome: "unsent", failure: failure("claim_undecided", "the claim was not decided") });
    return msg.nak(jitter(15_000));
  }
  if (answer.decision !== "accepted" && answer.decision !== "duplicate") return msg.ack(); // somebody else's
  const timeout = answer.timeout_ms ?? start.timeout_ms;
  const left = timeout - since();
  let end;
  if (stopping.signal.aborted) end = { outcome: "unsent", failure: failure("stopped", "the worker is told to exit") };
  else if (left <= margin(timeout)) end = { outcome: "unsent", failure: failure("too_late", `${since()} ms of ${timeout} have passed`) };
  // Who has no contract of the kind cannot judge a result by it.
  else if (start.contract && start.contract !== process.env.LEDGER_CONTRACT) end = { outcome: "unsent", failure: failure("contract_mismatch", `the job was accepted under ${start.contract}`) };
  else end = await call({ job_id: job, attempt, kind: start.kind, input: start.input }, left);
  if (await complete(claim, end)) msg.ack(); // the start is of no more use to anybody
}

// 2. The claim, repeated as it is until somebody says what became of it.
async function decided(claim, patience) {
  const inbox = createInbox(process.env.NATS_INBOX);
  const replyTo = headers();
  replyTo.set("Ledger-Reply", inbox);
  const sub = nc.subscribe(inbox, { max: 1 });
  const done = new AbortController();
  const answer = (async () => { for await (const msg of sub) return msg.json(); })();
  const stopped = once(stopping.signal, "abort", { signal: done.signal }).catch(() => {});
  try {
    for (let wait = 2_000; patience() > 0 && !stopping.signal.aborted; wait = Math.min(2 * wait, 30_000)) {
      js.publish(subject("attempt.claim"), JSON.stringify(claim), { headers: replyTo }).catch((err) => log("a claim may not be stored", err));
      const timer = pause(Math.min(wait, patience()), undefined, { signal: done.signal }).catch(() => {});
      const found = await Promise.race([answer, timer, stopped]);
      if (found?.decision) return found;
    }
  } finally {
    done.abort();
    sub.unsubscribe();
  }
}

// 3. The one call. It ends at the deadline, when it is named on the stop subject
// and when the worker has to exit; what is then not known is unknown.
async function call(job, left) {
  const end = new AbortController();
  const timer = setTimeout(() => end.abort("timeout"), Math.min(left, 2 ** 31 - 1));
  const id = `${job.job_id}/${job.attempt}`;
  running.set(id, end);
  try {
    const ended = await work(job, end.signal);
    if (Buffer.byteLength(ended.result ?? "") <= largest) return ended;
    return { outcome: "failed", failure: { class: "result_too_large", message: "the result is too large to be kept", executed: true, reach: "transient" } };
  } catch (err) {
    return { outcome: "unknown", failure: { class: end.signal.aborted ? end.signal.reason : "ambiguous", message: String(err.cause?.code ?? err.message ?? err), executed: true } };
  } finally {
    clearTimeout(timer);
    running.delete(id);
  }
}

// 4. The completion, repeated until the stream has acknowledged it.
async function complete(claim, { result, ...end }) {
  let body = JSON.stringify({ ...claim, ...end });
  if (result !== undefined) body = `${body.slice(0, -1)},"result":${result}}`; // as it came: no digit is lost
  for (let wait = 100; !leaving.signal.aborted; wait = Math.min(2 * wait, 5_000)) {
    try {
      return await js.publish(subject("attempt.complete"), body);
    } catch (err) {
      log(`the completion of ${claim.job}/${claim.attempt} is not acknowledged; it is tried again`, err);
    }
    await pause(jitter(wait));
  }
  lost++;
  log(`a completion is lost, since the worker must exit: ${claim.job}/${claim.attempt} ${end.outcome}`);
}

// 5. What is named here is to stop.
nc.subscribe(subject("stop"), { callback: (_, msg) => {
  try {
    const { job, attempt } = msg.json();
    running.get(`${job}/${attempt}`)?.abort("stopped");
  } catch (err) {
    log("a stop that cannot be read", err);
  }
} });

setInterval(() => held.forEach((_, msg) => msg.working()), 10_000); // or the start comes again
const consumer = await open();
for (let i = 0; i < concurrency; i++) slot(consumer);
log(`working for provider ${provider}`);

await Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
stopping.abort();
setTimeout(() => running.forEach((end) => end.abort("stopped")), graceMs);
setTimeout(() => leaving.abort(), graceMs + 10_000);
await Promise.allSettled(held.values());
await Promise.race([nc.flush(), pause(2_000)]); // the last acknowledgements
process.exit(lost > 0 ? 1 : 0);
