// The rows of a session: who said what, each call joined to its result, the lines of the graph.

import { h, button, s } from "./dom.js";
import { clock, moment, several } from "./words.js";

const WHO = { user: "You", assistant: "Model", tool: "Tool", system: "System", between: "", seam: "", aside: "" };
const STATES = {
  open: "open: no result", late: "answered late", closed: "", answered: "", orphan: "result without a call",
  duplicate: "second result", elsewhere: "called elsewhere",
};
const PAGE = 100;

/** Rows by their numbers, fetched in pages as they come into sight. */
export class Rows {
  constructor(load, arrived) {
    this.load = load;
    this.arrived = arrived;
    this.pages = new Map();
  }

  get(index) {
    const page = this.pages.get(Math.floor(index / PAGE));
    return Array.isArray(page) ? page[index % PAGE] : null;
  }

  want(start, stop) {
    for (let page = Math.floor(start / PAGE); page * PAGE < stop; page += 1) {
      if (this.pages.has(page)) continue;
      this.pages.set(page, "under way");
      this.load(page * PAGE, PAGE).then(
        (rows) => {
          this.pages.set(page, rows);
          this.arrived(page * PAGE, page * PAGE + rows.length);
        },
        (error) => {
          this.pages.delete(page);
          this.arrived(-1, -1, error);
        },
      );
    }
  }

  put(row) {
    const page = this.pages.get(Math.floor(row.at / PAGE));
    if (Array.isArray(page)) page[row.at % PAGE] = row;
  }
}

/** The lines beside a row: the conversation on the left, a piece that is not sent on the right. */
function gutter(row, kind) {
  const faint = row.is_summed_up || kind === "compacted" ? "faint" : "";
  const away = row.lane > 0 && kind !== "compacted";
  const line = (x, from, to, css) => s("line", { x1: x, y1: from, x2: x, y2: to, class: `way ${css}` });
  const parts = [line(10, 0, "100%", faint)];
  if (row.role === "aside" && away) {
    parts.push(s("path", { d: "M10 0C10 16 26 10 26 26", class: `way away ${kind}` }), line(26, 24, "100%", `away ${kind}`));
  } else if (away) {
    parts.push(line(26, 0, row.is_last ? 22 : "100%", `away ${kind}`));
    parts.push(row.is_last ? s("path", { d: "M21 22h10", class: `end ${kind}` }) : s("circle", { cx: 26, cy: 22, r: 3.5, class: `knot ${kind}` }));
  } else if (row.role === "seam") {
    parts.push(s("rect", { x: 4, y: 10, width: 12, height: 12, rx: 2, transform: "rotate(45 10 16)", class: "seam" }));
  } else if (row.role !== "between" && row.role !== "aside") {
    parts.push(s("circle", { cx: 10, cy: 22, r: row.turn ? 5.5 : 3.5, class: `knot ${faint || row.role} ${bad(row)}` }));
  }
  return s("svg", { class: "gutter", width: 36, "aria-hidden": "true" }, parts);
}

function bad(row) {
  const marks = row.parts.flatMap((part) => part.marks || []);
  if (marks.some((mark) => mark.severity === "error")) return "error";
  return marks.length ? "warning" : "";
}

function marked(part) {
  return (part.marks || []).map((mark) =>
    h("p", { class: `mark ${mark.severity}` }, h("b", {}, mark.code), " ", mark.message));
}

function more(part, open) {
  return part.more ? button(`Show ${part.more.toLocaleString("en")} more characters`, open, { class: "more" }) : null;
}

function folded(text, lines, css) {
  const long = text.split("\n", lines + 1).length > lines || text.length > lines * 160;
  const box = h("pre", { class: `${css} ${long ? "clipped" : ""}` }, text);
  if (!long) return box;
  const toggle = button("Show all", () => {
    const open = box.classList.toggle("clipped");
    toggle.textContent = open ? "Show all" : "Show less";
    toggle.setAttribute("aria-expanded", open ? "false" : "true");
  }, { class: "more", "aria-expanded": "false" });
  return [box, toggle];
}

function drawArguments(list) {
  if (!list.length) return null;
  const short = list.length === 1 && !list[0][1].includes("\n") && list[0][1].length < 160;
  if (short) return h("code", { class: "short" }, list[0][1]);
  return h("dl", { class: "arguments" }, list.map(([key, text]) => [
    key && h("dt", {}, key), h("dd", {}, folded(text, 6, "value"))]));
}

function drawResult(result, state, open) {
  const word = STATES[state] || "";
  const title = state === "open" ? "No result" : result.title || "result";
  return h("div", { class: `result ${state} ${result.failed ? "failed" : ""}` },
    h("div", { class: "head" }, h("span", { class: "name" }, result.failed ? `error ${title}` : title),
      word && state !== "open" && h("span", { class: "word" }, word)),
    result.text && folded(result.text, 8, "output"),
    (result.pictures || []).map((picture) => h("p", { class: "picture" }, picture)), more(result, open));
}

function drawPart(part, open) {
  switch (part.kind) {
    case "call":
      return h("div", { class: `call ${part.state}` },
        h("div", { class: "head" }, h("span", { class: "tool" }, part.tool), part.by && h("span", { class: "word" }, part.by), drawArguments(part.arguments || [])),
        more(part, open), part.result ? drawResult(part.result, part.state, open) : null, marked(part));
    case "result":
      return h("div", { class: `call stray ${part.state}` }, drawResult(part, part.state, open), marked(part));
    case "text":
      return [h("div", { class: `said ${part.role}` }, folded(part.text, 24, "words")), more(part, open), marked(part)];
    case "checkpoint":
      return h("p", { class: "checkpoint" }, part.text);
    case "seam":
    case "aside":
      return h("p", { class: part.kind }, part.text);
    default:
      return [part.text && h("div", { class: part.is_warning ? "note warn" : "note" }, folded(part.text, 4, "words")), more(part, open), marked(part)];
  }
}

function placed(place, unit) {
  const first = /^\d+/.exec(place);
  return first ? `${unit} ${first[0]}` : place;
}

/** One row; `on` has what can be done with it. */
export function drawRow(row, { isAt, asides, on }) {
  const open = () => on.full(row.at);
  const aside = row.role === "aside" ? asides[row.aside] : null;
  const kind = row.aside === undefined ? "" : asides[row.aside].kind;
  const time = row.time ? clock(row.time) : "";
  return h("div", { class: `row ${row.role} ${row.lane ? "apart" : ""} ${row.is_summed_up ? "summed" : ""} ${kind} ${isAt ? "at" : ""}`, "aria-current": isAt ? "true" : null },
    gutter(row, kind),
    h("div", { class: "body" },
      WHO[row.role] && h("div", { class: "who" },
        h("span", { class: "role" }, WHO[row.role]), row.turn && h("span", { class: "turn" }, `turn ${row.turn}`),
        h("a", { class: "place", href: `#/s/${on.id}/at/${row.at}`, title: "Link to this message" }, placed(row.place, on.unit) || `row ${row.at + 1}`),
        time && h("time", { title: moment(row.time) }, time),
        on.rewind && row.place && !row.lane && [
          button("Go back to here…", () => on.rewind(Number(row.place)), { class: "quiet" }),
          button("Fork from here…", () => on.fork(Number(row.place)), { class: "quiet" })]),
      row.parts.map((part) => drawPart(part, open)),
      aside && aside.kind !== "compacted" && on.branch && button("Save this branch as a session…", () => on.branch(aside), { class: "quiet" })));
}

export function drawMissing() {
  return h("div", { class: "row missing" }, h("div", { class: "body" }, h("div", { class: "bone" }), h("div", { class: "bone short" })));
}

/** The whole session as one line: where it branches, where it is cut, where something is wrong. */
export function drawMap(view, at, go) {
  const { count, asides, marks } = view;
  if (!count) return null;
  const share = (row) => 1 + (Math.min(row, count - 1) / Math.max(count - 1, 1)) * 98;
  const x = (row) => `${share(row)}%`;
  const line = (from, to, y, css) => s("line", { x1: `${from}%`, y1: y, x2: `${to}%`, y2: y, class: css });
  const parts = [line(1, 99, 12, "way")];
  for (const one of asides) {
    const from = share(one.row);
    const to = share(one.row + one.messages);
    if (one.kind === "compacted") {
      parts.push(line(from, to, 12, "cover"), line(from, to, 12, "way faint"), s("rect", { x: `${to}%`, y: 5, width: 4, height: 14, class: "seam" }));
    } else {
      const end = Math.max(to, from + 1.5);
      parts.push(s("line", { x1: `${from}%`, y1: 12, x2: `${from}%`, y2: 28, class: `way away ${one.kind}` }), line(from, end, 28, `way away ${one.kind}`),
        s("circle", { cx: `${end}%`, cy: 28, r: 3.5, class: `knot ${one.kind}` }));
    }
  }
  for (const [severity, row] of marks) parts.push(s("circle", { cx: x(row), cy: 12, r: 4, class: `tick ${severity}` }));
  parts.push(s("rect", { x: x(at), y: 3, width: 3, height: 18, rx: 1.5, class: "here" }));
  const branches = asides.length === 1 ? "1 branch" : `${asides.length} branches`;
  const words = [several(count, "row"), asides.length && branches, marks.length && several(marks.length, "marked place")].filter(Boolean).join(", ");
  return s("svg", {
    class: asides.some((one) => one.kind !== "compacted") ? "map deep" : "map", role: "img", "aria-label": `Map of the session: ${words}`,
    onclick: (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      go(Math.round(((event.clientX - box.left) / box.width) * (count - 1)));
    },
  }, parts);
}
