// The page: who may look, which view the address names, keys, light and dark.

import { Refused, enter, listen, post } from "./api.js";
import { h, button, replace, s, toast, typing } from "./dom.js";
import { helpDialog } from "./dialogs.js";
import { ListView } from "./list.js";
import { SessionView } from "./session.js";
import { StoreView } from "./store.js";
import { several } from "./words.js";

const main = document.getElementById("main");

/** What all views share: the sessions, how far the scan is, and who wants to know of news. */
export const state = {
  rows: new Map(),
  hello: { target: "", is_store: false, dialects: [] },
  scan: { is_done: false, count: 0, error: "", left_out: 0 },
  link: "closed",
  view: null,
};

// Light and dark

function theme() {
  return document.documentElement.dataset.theme || "";
}

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("lockstitch-theme", name);
}

function isDark() {
  if (theme()) return theme() === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  setTheme(isDark() ? "light" : "dark");
  drawBar();
}

// The bar

function icon(path, props) {
  return s("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true", ...props },
    s("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round" }));
}

const SUN = "M12 4V2m0 20v-2m8-8h2M2 12h2m13.700-5.700 1.400-1.400M4.900 19.100l1.400-1.400m0-11.400L4.900 4.900m14.200 14.200-1.400-1.400M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0z";
const MOON = "M20 14.500A8 8 0 0 1 9.500 4a8 8 0 1 0 10.500 10.500z";
const AGAIN = "M4 12a8 8 0 0 1 13.700-5.600L20 8.500M20 4v4.500h-4.500M20 12a8 8 0 0 1-13.700 5.600L4 15.500M4 20v-4.500h4.500";

function scanWords() {
  if (state.link === "closed") return "Not connected";
  const count = several(state.rows.size, "session");
  if (!state.scan.is_done) return `Scanning… ${count}`;
  const more = state.scan.left_out ? ` (${state.scan.left_out} more not listed)` : "";
  return `${count}${more}`;
}

export function drawBar() {
  const bar = document.getElementById("bar");
  const busy = !state.scan.is_done && state.link === "open";
  replace(bar,
    h("a", { class: "brand", href: "#/" },
      h("img", { src: "/assets/mark.svg", alt: "", width: 24, height: 24 }), h("span", {}, "Lockstitch")),
    h("span", { class: "target", title: state.hello.target || "All sessions on this machine" },
      state.hello.target || "this machine"),
    state.hello.is_store && h("a", { class: "tab", href: "#/store" }, "Store"),
    h("span", { class: "spacer" }),
    h("span", { id: "scan", class: busy ? "scan busy" : "scan" }, scanWords()),
    button(icon(AGAIN), () => post("/api/scan", {}).catch(tell), { class: "icon", title: "Scan again", "aria-label": "Scan again" }),
    button(icon(isDark() ? SUN : MOON), switchTheme, {
      class: "icon", title: "Light or dark (t)", "aria-label": isDark() ? "Use light colours" : "Use dark colours",
    }),
    button("?", helpDialog, { class: "icon", title: "Keys (?)", "aria-label": "Keys" }));
}

// Views

export function tell(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Refused) {
    refused();
    return;
  }
  toast(error.message || String(error), "bad");
}

function refused() {
  show(null);
  replace(main, h("section", { class: "empty" },
    h("h1", {}, "Open the address that was printed"),
    h("p", {}, "This page shows what was said in your sessions, so it opens only for the browser that follows the address `lockstitch ui` printed in the terminal. Each address works once: start `lockstitch ui` again for a new one.")));
}

function show(view) {
  if (state.view) state.view.close();
  state.view = view;
  if (view) view.open(main);
}

function route() {
  const [, kind, id, , at] = location.hash.slice(1).split("/");
  if (kind === "s" && id) {
    const start = at === undefined ? null : Number(at);
    if (state.view instanceof SessionView && state.view.id === id) state.view.go(start);
    else show(new SessionView(id, start, state));
  } else if (kind === "store") show(new StoreView(state));
  else if (!(state.view instanceof ListView)) show(new ListView(state));
  main.classList.toggle("wide", kind === "s");
}

function take(event) {
  if (event.hello) state.hello = event.hello;
  if (event.reset) state.rows.clear();
  if (event.rows) for (const row of event.rows) state.rows.set(row.id, row);
  if (event.state) state.scan = event.state;
  if (event.state && event.state.error) toast(event.state.error, "bad");
  drawBar();
  if (state.view && state.view.news) state.view.news(event);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (typing(event) && event.key !== "Escape") return;
  if (event.key === "?") helpDialog();
  else if (event.key === "t") switchTheme();
  else if (!(state.view && state.view.key && state.view.key(event))) return;
  event.preventDefault();
});

async function start() {
  setTheme(localStorage.getItem("lockstitch-theme") || "");
  drawBar();
  if (!(await enter())) {
    refused();
    return;
  }
  addEventListener("hashchange", route);
  route();
  listen(take, (link) => {
    state.link = link;
    if (link === "refused") refused();
    drawBar();
  });
}

start();
