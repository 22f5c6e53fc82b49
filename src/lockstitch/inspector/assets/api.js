// Asking the server: the token from the address is handed in once, another goes with every request.

const KEY = "lockstitch-token";

export class Refused extends Error {}

function stored() {
  try {
    return localStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
}

/** Hand the token of the address in; gives whether this page may ask at all. */
export async function enter() {
  const match = /^#token=([\w-]+)$/.exec(location.hash);
  if (match) {
    history.replaceState(null, "", `${location.pathname}#/`);
    const answer = await fetch("/api/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: match[1] }),
    });
    if (answer.ok) localStorage.setItem(KEY, (await answer.json()).token);
  }
  return Boolean(stored());
}

function headers(more) {
  return { "X-Lockstitch-Token": stored(), ...more };
}

async function answered(answer) {
  if (answer.ok) return answer;
  let text = `The server answered ${answer.status}.`;
  try {
    text = (await answer.json()).error || text;
  } catch {
    // an answer without words: the number is all there is
  }
  throw answer.status === 401 ? new Refused(text) : new Error(text);
}

export async function get(path, signal) {
  const answer = await answered(await fetch(path, { headers: headers(), signal }));
  return answer.json();
}

async function send(path, value) {
  return answered(
    await fetch(path, {
      method: "POST",
      headers: headers({ "Content-Type": "application/json" }),
      body: JSON.stringify(value),
    }),
  );
}

export async function post(path, value) {
  return (await send(path, value)).json();
}

/** Have a file made by the server, and save it as the browser saves files. */
export async function download(path, value) {
  const answer = await send(path, value);
  const named = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "");
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = named ? named[1] : "session.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  return link.download;
}

/** Server-sent events, with the header that an EventSource cannot send; calls back for each. */
export async function listen(tell, onState) {
  let wait = 500;
  for (;;) {
    try {
      const answer = await answered(await fetch("/api/events", { headers: headers() }));
      onState("open");
      wait = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const pieces = (rest + value).split("\n\n");
        rest = pieces.pop();
        for (const piece of pieces) {
          if (piece.startsWith("data: ")) tell(JSON.parse(piece.slice(6)));
        }
      }
    } catch (error) {
      if (error instanceof Refused) {
        onState("refused");
        return;
      }
    }
    onState("closed");
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10000);
  }
}
