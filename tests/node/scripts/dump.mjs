// What a thread holds, as JSON: its states, newest first, as the graph itself sees them.

export function told(message) {
  const { id, content, tool_calls: calls, tool_call_id: answers, status } = message;
  return {
    id,
    type: message.getType?.() ?? "no message",
    kind: message.constructor.name,
    content,
    ...(calls?.length && { calls: calls.map(({ id, name, args }) => ({ id, name, args })) }),
    ...(answers && { answers, status }),
  };
}

export function shown({ values, next, tasks, config, parentConfig, metadata }) {
  const { messages = [], ...rest } = values;
  return {
    checkpoint: config.configurable.checkpoint_id,
    parent: parentConfig?.configurable.checkpoint_id ?? null,
    step: metadata?.step,
    source: metadata?.source,
    next,
    interrupts: tasks.flatMap((task) => task.interrupts.map(({ value }) => value)),
    messages: messages.map(told),
    rest,
  };
}

export async function history(graph, config) {
  const states = [];
  for await (const state of graph.getStateHistory(config)) states.push(shown(state));
  return states;
}
