// What a program does with a thread, well or badly.

import { writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

import { HumanMessage } from "@langchain/core/messages";
import { Command } from "@langchain/langgraph";

import { history, shown } from "./dump.mjs";
import * as recipe from "./langgraph.mjs";
import { stalling } from "./stalling.mjs";

// The runs that were begun and have not been waited for, by thread.
export const begun = new Map();

const ACTS = {
  // Sends a message, and lets the graph run to its end, to its next question or to an error.
  say: ({ graph, config, text }) => run(graph, said(text), config),
  // Answers the question that the thread waits with.
  resume: ({ graph, config, answer }) => run(graph, new Command({ resume: answer }), config),
  // Goes on from where the thread stands, as after a breakpoint.
  proceed: ({ graph, config }) => run(graph, null, config),
  // Sends a message, and comes back once the tools that can end have ended, the run still going.
  begin: async ({ graph, config, text, thread, finished }) => {
    const going = run(graph, said(text), config);
    begun.set(thread, going);
    await results(graph, config, going, finished);
  },
  // Waits for the end of that run.
  finish: async ({ thread }) => {
    const came = await begun.get(thread);
    begun.delete(thread);
    return came;
  },
  // Sends a message, and comes back once that is stored; nothing that follows from it ever is.
  drop: async ({ build, config, text, thread, checkpointer }) => {
    const saver = stuck(checkpointer);
    const input = { messages: [{ role: "user", content: text }] };
    const graph = await build({ saver });
    begun.set(thread, graph.invoke(input, { ...config, durability: "sync" }));
    await until(async () => await checkpointer.getTuple(config));
  },
  // As begin, and then the person presses stop.
  abort: async ({ graph, config, text, finished }) => {
    const stop = new AbortController();
    const going = run(graph, said(text), { ...config, signal: stop.signal });
    await results(graph, config, going, finished);
    stop.abort();
    return going;
  },
  // The person presses stop while the reply streams in; the program keeps what has come.
  cut: async ({ build, config, text, call, node }) => {
    const provider = await stalling({ call });
    const graph = await build({ url: provider.url, streaming: true });
    const last = call ? "half-wri" : "shall";
    const { kept, ...came } = await streamed(graph, said(text), config, last);
    // The run that was aborted may still have a checkpoint to store.
    await until(async () => (await graph.getState(config)).next.includes(node));
    await graph.updateState(config, { messages: [kept] }, node);
    provider.close();
    return came;
  },
  // Puts messages into the thread as if a node had returned them.
  keep: async ({ graph, config, messages, node }) => {
    await graph.updateState(config, { messages }, node);
  },
  // Sends a message as the recipe does: in a thread that was interrupted, it is repaired first.
  goOn: ({ graph, database, thread, text }) =>
    reported(() => recipe.say(graph, database, thread, text)),
  // Has the thread repaired, and then lets the tools end that wait for a file.
  repair: async ({ database, thread, signal }) => {
    const sessions = await recipe.repair(database, thread);
    if (signal) writeFileSync(signal, "");
    return { sessions };
  },
  // Lets SQLite keep its journal in the other way.
  journal: async ({ checkpointer, mode }) => {
    checkpointer.setup();
    return { mode: checkpointer.db.pragma(`journal_mode = ${mode}`, { simple: true }) };
  },
  // Only looks.
  show: () => ({}),
  history: async ({ graph, config }) => ({ history: await history(graph, config) }),
};

// Does one act, and gives what came of it with the state behind it.
export async function done(act, options) {
  const config = { configurable: { thread_id: options.thread } };
  const graph = await options.build({});
  const came = await ACTS[act]({ ...options, graph, config, checkpointer: graph.checkpointer });
  return { thread: options.thread, ...came, state: shown(await graph.getState(config)) };
}

function said(text) {
  return { messages: [new HumanMessage(text)] };
}

// A saver that stores one checkpoint, and is still about to store the next when the process ends.
function stuck(saver) {
  let stored = 0;
  const never = () => new Promise(() => {});
  const put = (...words) => (stored++ ? never() : saver.put(...words));
  return Object.assign(Object.create(saver), { put, putWrites: never });
}

function run(graph, input, config) {
  return reported(() => graph.invoke(input, config));
}

async function streamed(graph, input, config, end) {
  const stop = new AbortController();
  const options = { ...config, signal: stop.signal, streamMode: "messages" };
  let kept;
  const came = await reported(async () => {
    for await (const [chunk] of await graph.stream(input, options)) {
      kept = kept ? kept.concat(chunk) : chunk;
      if (JSON.stringify(kept.content).includes(end)) stop.abort();
    }
  });
  return { kept, ...came };
}

async function reported(action) {
  try {
    await action();
    return {};
  } catch (error) {
    return { error: error.name, status: error.status ?? null, text: error.message };
  }
}

// Waits until the tools of a run, maybe those of a graph within the graph, have left so many
// results behind, while others still run.
async function results(graph, config, going, count) {
  let ended;
  going.then((came) => (ended = came));
  await until(async () => ended || (await left(graph, config)) === count);
  if (ended) throw new Error(`the run has ended: ${JSON.stringify(ended)}`);
}

async function left(graph, config) {
  const { next, tasks } = await graph.getState(config, { subgraphs: true });
  const running = [next, ...tasks.map(({ state }) => state?.next)].flat();
  if (!running.includes("tools")) return undefined;
  const { pendingWrites } = await graph.checkpointer.getTuple(config);
  return pendingWrites.filter(([, channel]) => channel === "messages").length;
}

async function until(condition) {
  while (!(await condition())) await setTimeout(5);
}
