// Real graphs with real models; only the provider behind the model is on this machine.

import { existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

import { ChatAnthropic } from "@langchain/anthropic";
import {
  Annotation,
  DeltaValue,
  interrupt,
  MessagesAnnotation,
  MessagesDeltaValue,
  Send,
  StateGraph,
  StateSchema,
} from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { createAgent, humanInTheLoopMiddleware, tool } from "langchain";
import { z } from "zod";

const path = z.object({ path: z.string() });

const read = tool(({ path }) => `contents of ${path}`, {
  name: "read",
  description: "Reads a file.",
  schema: path,
});

// Ends once there is a file of that name; else with the run, or with the process.
const hang = tool(({ path }, { signal }) => appeared(path, signal), {
  name: "hang",
  description: "Waits for a file.",
  schema: path,
});

const ask = tool(({ path }) => `${interrupt({ question: `delete ${path}?` })}: ${path}`, {
  name: "ask",
  description: "Deletes a file if a person agrees.",
  schema: path,
});

const erase = tool(({ path }) => `erased ${path}`, {
  name: "erase",
  description: "Erases a file; the agent's middleware asks a person first.",
  schema: path,
});

const fail = tool(failing, { name: "fail", description: "Never works.", schema: path });

const TOOLS = [read, hang, ask, erase, fail];

const NOTED = Annotation.Root({
  ...MessagesAnnotation.spec,
  notes: Annotation({ reducer: (old, added) => old.concat(added), default: () => [] }),
});

const WHOLE_AT_TIMES = new DeltaValue(MessagesDeltaValue.valueSchema, {
  inputSchema: MessagesDeltaValue.inputSchema,
  reducer: MessagesDeltaValue.reducer,
  snapshotFrequency: 3,
});

export const GRAPHS = {
  // LangChain's agent: every call is a task of its own.
  agent: (model, checkpointer) =>
    createAgent({ model, tools: TOOLS, checkpointer, middleware: [guarded()] }).graph,
  // A graph by hand: all calls of a reply are one task.
  plain: (model, checkpointer, options) =>
    plain(model, NOTED, toolsIfCalled).compile({ checkpointer, ...options }),
  // The same with a task for every call, and with messages stored as deltas.
  delta: (model, checkpointer) =>
    plain(model, new StateSchema({ messages: MessagesDeltaValue }), eachCall).compile({
      checkpointer,
    }),
  // A task for every call, and a tool that fails ends the run.
  strict: (model, checkpointer) =>
    plain(model, NOTED, eachCall, { handleToolErrors: false }).compile({ checkpointer }),
  // The same with the whole conversation stored every third time.
  snapshots: (model, checkpointer) =>
    plain(model, new StateSchema({ messages: WHOLE_AT_TIMES }), eachCall).compile({ checkpointer }),
  // A graph within a graph: the inner one keeps its state under a name of its own.
  nested: (model, checkpointer) =>
    new StateGraph(NOTED)
      .addNode("inner", plain(model, NOTED, toolsIfCalled).compile())
      .addEdge("__start__", "inner")
      .compile({ checkpointer }),
  // A graph that stops before its tools, so that a person may look.
  halting: (model, checkpointer) =>
    GRAPHS.plain(model, checkpointer, { interruptBefore: ["tools"] }),
};

export async function graphOf(name, saver, provider) {
  return GRAPHS[name](await modelAt(provider), saver);
}

async function modelAt({ url, dialect, streaming = false }) {
  const common = { apiKey: "none", maxRetries: 0, streaming };
  if (dialect === "openai") {
    // Loading it takes a while, and few want it.
    const { ChatOpenAI } = await import("@langchain/openai");
    const configuration = { baseURL: `${url}/v1` };
    return new ChatOpenAI({ ...common, model: "gpt-4.1", configuration });
  }
  return new ChatAnthropic({ ...common, model: "claude-sonnet-4-5", anthropicApiUrl: url });
}

function guarded() {
  return humanInTheLoopMiddleware({ interruptOn: { erase: true } });
}

function plain(model, state, route, options = {}) {
  const bound = model.bindTools(TOOLS);
  const reply = async ({ messages }, config) => ({
    messages: [await bound.invoke(messages, config)],
    ...(state === NOTED && { notes: [`read ${messages.length} messages`] }),
  });
  return new StateGraph(state)
    .addNode("model", reply)
    .addNode("tools", new ToolNode(TOOLS, options))
    .addEdge("__start__", "model")
    .addConditionalEdges("model", route, ["tools", "__end__"])
    .addEdge("tools", "model");
}

function toolsIfCalled({ messages }) {
  return messages.at(-1).tool_calls?.length ? "tools" : "__end__";
}

function eachCall({ messages }) {
  const calls = messages.at(-1).tool_calls ?? [];
  if (!calls.length) return "__end__";
  return calls.map((call) => new Send("tools", { messages: [], lg_tool_call: call }));
}

async function failing({ path }) {
  await setTimeout(100);
  throw new RangeError(`no room for ${path}`);
}

async function appeared(path, signal) {
  while (!existsSync(path)) await setTimeout(20, undefined, { signal });
  return `${path} is there`;
}
