// An app with LangGraph.js continues a thread in the same process in which it was interrupted:
// `lockstitch` repairs the database while it is open, and what had finished is in the next request.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const command = process.env.LOCKSTITCH ?? "lockstitch";

// The database is what the saver was opened with: the path of a file, or postgresql://…
export async function repair(database, thread) {
  const words = ["repair", database, "--session", thread, "--yes", "--json"];
  for (let tries = 0; tries < 10; tries++) {
    // With a status other than 0 something is left, and the JSON says what.
    const done = await promisify(execFile)(command, words).catch((error) => error);
    if (!done.stdout) throw done;
    const { sessions } = JSON.parse(done.stdout);
    if (sessions.every(({ outcome }) => outcome !== "went on")) return sessions;
  }
  throw new Error(`${thread} is still running: wait for its run to end, or abort it`);
}

// Send a message to a thread, even if the run before it was aborted or killed with its process.
export async function say(graph, database, thread, text, signal) {
  const config = { configurable: { thread_id: thread } };
  const { next } = await graph.getState(config);
  if (next.length) await repair(database, thread);
  return graph.invoke({ messages: [{ role: "user", content: text }] }, { ...config, signal });
}
