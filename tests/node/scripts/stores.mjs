// The savers of LangGraph.js, by the address of a database.

import { PostgresSaver } from "@langchain/langgraph-checkpoint-postgres";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";

export async function opened(address) {
  if (address.startsWith("postgres")) {
    const { searchParams } = new URL(address);
    const saver = PostgresSaver.fromConnString(address, { schema: searchParams.get("schema") });
    await saver.setup();
    return { saver, close: () => saver.end() };
  }
  const saver = SqliteSaver.fromConnString(address);
  return { saver, close: () => saver.db.close() };
}
