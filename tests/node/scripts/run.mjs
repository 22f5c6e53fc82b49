// Does acts on the threads of a database, in order, and prints a line of JSON for each:
// node run.mjs '{"address": …, "provider": {"url": …}, "acts": [{"act": …, "thread": …, …}]}'

import { begun, done } from "./acts.mjs";
import { graphOf } from "./graphs.mjs";
import { opened } from "./stores.mjs";

const { address, provider, acts } = JSON.parse(process.argv[2]);
const { saver, close } = await opened(address);
for (const { act, graph, ...options } of acts) {
  const build = (other) => graphOf(graph, other.saver ?? saver, { ...provider, ...other });
  console.log(JSON.stringify(await done(act, { ...options, build, database: address })));
}
// Runs that nobody waited for go on until the process is killed.
if (begun.size) setInterval(() => {}, 1e6);
else await close();
