// One session: its state, what is wrong with it, its timeline, and what can be done.

import { get } from "./api.js";
import { h, button, replace, toast } from "./dom.js";
import { actionDialog, branchDialog, exportDialog } from "./dialogs.js";
import { tell } from "./main.js";
import { Rows, drawMap, drawMissing, drawRow } from "./timeline.js";
import { VirtualList } from "./virtual.js";
import { LEVELS, ago, brief, moment, several, size } from "./words.js";

const LABELS = {
  repair: "Repair…", undo: "Undo repair…", unrewind: "Undo rewind…", uncompact: "Undo compaction…",
  fork: "Fork…", compact: "Compact…", export: "Export…",
};

export class SessionView {
  constructor(id, start, state) {
    this.id = id;
    this.start = start;
    this.state = state;
    this.at = 0;
    this.reveal = false;
    this.found = { words: "", rows: [], at: -1 };
    this.data = null;
  }

  open(main) {
    this.head = h("div", { class: "session-head" });
    this.panel = h("aside", { class: "panel", "aria-label": "What is wrong" });
    this.map = h("div", { class: "map-box" });
    this.tools = h("div", { class: "timeline-tools" });
    this.host = h("div", { class: "timeline", tabindex: 0, role: "region", "aria-label": "Messages" });
    replace(main, h("div", { class: "session" }, this.head,
      h("div", { class: "session-body" }, h("section", { class: "talk", "aria-label": "Conversation" }, this.tools, this.map, this.host), this.panel)));
    this.list = new VirtualList(this.host, {
      height: 120,
      draw: (index) => this.draw(index),
      seen: (start, stop) => this.seen(start, stop),
    });
    replace(this.head, h("p", { class: "faint" }, "Reading…"));
    this.load(this.start);
  }

  close() {
    this.list.close();
    this.closed = true;
  }

  async load(start) {
    try {
      const data = await get(`/api/session/${this.id}`);
      if (this.closed) return;
      this.data = data;
      this.rows = new Rows((from, count) => this.fetch(from, count), (from, stop, error) => {
        if (error) tell(error);
        else if (!this.closed) this.list.refresh(from, stop);
      });
      this.drawHead();
      this.drawPanel();
      this.drawTools();
      this.list.reset(data.count);
      const first = data.marks.length ? Math.max(Math.min(...data.marks.map((mark) => mark[1])), 0) : data.count - 1;
      this.go(start ?? first, false);
      this.host.focus({ preventScroll: true });
    } catch (error) {
      if (this.closed) return;
      if (!this.state.scan.is_done && this.state.link !== "refused") {
        this.waiting = true;
        replace(this.head, h("p", { class: "faint" }, "Waiting for the scan to find this session…"));
      } else {
        replace(this.head, h("h1", {}, "This session cannot be shown"), h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All sessions")));
      }
    }
  }

  news(event) {
    if (this.waiting && (this.state.scan.is_done || (event.rows || []).some((row) => row.id === this.id))) {
      this.waiting = false;
      this.load(this.start);
    }
  }

  async fetch(from, count) {
    const data = await get(`/api/session/${this.id}/rows?version=${this.data.version}&from=${from}&count=${count}&reveal=${this.reveal ? 1 : 0}`);
    return data.rows;
  }

  // The head

  drawHead() {
    const { row, actions } = this.data;
    document.title = `${row.title || row.session} · Lockstitch`;
    const facts = [row.program, row.project && brief(row.project), several(row.messages || this.data.count, "message"),
      row.updated && ago(Date.now() / 1000 - row.updated)].filter(Boolean);
    const level = this.data.error ? "unreadable" : row.level;
    replace(this.head,
      h("nav", { class: "crumbs", "aria-label": "Where you are" }, h("a", { href: "#/" }, "Sessions"), h("span", { "aria-hidden": "true" }, "/"), h("span", { title: row.target }, brief(row.target))),
      h("div", { class: "title-line" }, h("h1", {}, row.title || row.session || "Session"), h("span", { class: `badge ${level}`, id: "badge" }, LEVELS[level] || level)),
      h("p", { class: "facts" }, facts.join("  ·  ")),
      h("p", { class: `verdict ${level}`, id: "verdict" }, this.verdict(level)),
      h("div", { class: "doing" },
        h("div", { class: "actions" }, Object.keys(LABELS).filter((name) => actions.includes(name)).map((name) =>
          button(LABELS[name], () => this.act(name), { class: name === "repair" ? "primary" : "", dataset: { action: name } }))),
        row.resume && h("div", { class: "resume" }, h("code", { id: "resume" }, row.resume), button("Copy", () => this.copy(row.resume), { "aria-label": "Copy the command that resumes it" }))));
  }

  verdict(level) {
    if (this.data.error) return this.data.error;
    if (level === "healthy" && this.data.problems.length) return "Healthy, with notes: nothing needs a repair.";
    if (level === "healthy") return this.data.asides.length ? "Healthy. What a resume does not send was left on purpose or is summarized." : "Healthy. A resume sends all of it.";
    return `${this.data.row.state}.`.replace(/^./, (first) => first.toUpperCase());
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      getSelection().selectAllChildren(document.getElementById("resume"));
      toast("Press Ctrl+C to copy it.");
    }
  }

  async act(action, options) {
    if (action === "export") {
      exportDialog(this.id, this.state.hello.dialects);
      return;
    }
    const says = await actionDialog(this.id, action, { reveal: this.reveal, ...options });
    this.host.focus({ preventScroll: true });
    if (!says || this.closed) return;
    for (const text of says) toast(text, "good");
    await this.load(this.at);
  }

  // What is wrong

  drawPanel() {
    const { problems, notes, asides } = this.data;
    const lost = asides.filter((one) => one.kind === "lost").reduce((sum, one) => sum + one.turns, 0);
    replace(this.panel,
      h("h2", {}, problems.length ? "What is wrong" : "Nothing is wrong"),
      problems.map((one) => this.drawProblem(one)),
      asides.length > 0 && h("section", { class: "branches" }, h("h2", {}, "What a resume does not send"),
        lost > 0 && h("p", {}, `${several(lost, "turn")} would be lost.`),
        h("ul", {}, asides.map((one) => h("li", { class: one.kind }, h("a", { href: `#/s/${this.id}/at/${one.row}` }, `${several(one.turns, "turn")}, ${several(one.messages, "message")}`), h("span", {}, one.words))))),
      notes.length > 0 && h("section", {}, h("h2", {}, "Notes"), h("ul", { class: "notes" }, notes.map((note) => h("li", {}, note)))),
      this.drawAbout());
  }

  drawAbout() {
    const { row, dialect, turns } = this.data;
    const facts = [["Program", row.program], ["Project", row.project], ["Session", row.session], ["Kept in", row.target], ["Wire format", dialect],
      ["Messages", row.messages.toLocaleString("en")], ["Turns", turns.toLocaleString("en")], ["Records", row.records && row.records.toLocaleString("en")],
      ["Size", row.size && size(row.size)], ["Last used", row.updated && moment(row.updated * 1000)]];
    return h("section", {}, h("h2", {}, "About"), h("dl", { class: "about" },
      facts.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }

  drawProblem(problem) {
    const places = problem.findings.slice(0, 12);
    const left = problem.findings.length + problem.more - places.length;
    return h("details", { class: `problem ${problem.severity}`, open: problem.severity !== "note" },
      h("summary", {}, h("span", { class: "severity" }, problem.severity), h("span", { class: "words" }, problem.words)),
      h("p", {}, problem.meaning),
      problem.refusal && h("blockquote", {}, problem.refusal),
      h("p", { class: "cure" }, problem.cure),
      h("p", { class: "places" }, places.map((one) => one.row === null ? h("code", { title: one.message }, one.place) : h("a", { href: `#/s/${this.id}/at/${one.row}`, title: one.message }, one.place)), left > 0 && h("span", { class: "faint" }, `and ${left} more`)),
      h("details", { class: "rule" }, h("summary", {}, `${problem.code} ${problem.name}`), h("p", {}, problem.what), h("p", {}, h("b", {}, "Cause. "), problem.cause), h("p", {}, h("b", {}, "Repair. "), problem.repair)));
  }

  // The timeline

  drawTools() {
    this.search = h("input", { type: "search", class: "search", placeholder: "Find in this session…", "aria-label": "Find in this session", onchange: () => this.find(), value: this.found.words });
    this.count = h("span", { class: "faint", role: "status" });
    replace(this.tools, this.search, this.count,
      this.data.problems.length > 0 && button("Next problem", () => this.nextProblem(1), { title: "n" }),
      button("First", () => this.go(0), { title: "g" }), button("Last", () => this.go(this.data.count - 1), { title: "G" }),
      button(this.reveal ? "Mask secrets" : "Show secrets", () => this.toggleSecrets(), { "aria-pressed": this.reveal ? "true" : "false", title: "s" }));
  }

  toggleSecrets() {
    this.reveal = !this.reveal;
    this.rows.pages.clear();
    this.drawTools();
    this.list.refresh();
  }

  async find() {
    const words = this.search.value.trim();
    this.found = { words, rows: [], at: -1 };
    replace(this.count, "");
    if (!words) return;
    try {
      const data = await get(`/api/session/${this.id}/find?version=${this.data.version}&reveal=${this.reveal ? 1 : 0}&q=${encodeURIComponent(words)}`);
      this.found.rows = data.rows;
      replace(this.count, data.count ? several(data.count, "match").replace("matchs", "matches") : "no match");
      this.nextFound(1);
      this.host.focus({ preventScroll: true });
    } catch (error) {
      tell(error);
    }
  }

  nextFound(step) {
    const { rows } = this.found;
    if (!rows.length) return;
    this.found.at = (this.found.at + step + rows.length) % rows.length;
    replace(this.count, `${this.found.at + 1} of ${rows.length}`);
    this.go(rows[this.found.at]);
  }

  nextProblem(step) {
    const rows = [...new Set(this.data.marks.map((mark) => mark[1]))].sort((a, b) => a - b);
    if (!rows.length) return;
    const next = step > 0 ? rows.find((row) => row > this.at) ?? rows[0] : rows.findLast((row) => row < this.at) ?? rows.at(-1);
    this.go(next);
  }

  seen(start, stop) {
    if (this.rows && this.data) this.rows.want(start, Math.min(stop, this.data.count));
  }

  draw(index) {
    const row = this.rows.get(index);
    if (!row) return drawMissing();
    const { actions } = this.data;
    const element = drawRow(row, {
      isAt: index === this.at,
      asides: this.data.asides,
      on: {
        id: this.id,
        unit: this.data.row.is_own ? "record" : "line",
        full: (at) => this.full(at),
        rewind: actions.includes("rewind") ? (to) => this.act("rewind", { to }) : null,
        fork: (to) => this.act("fork", { to }),
        branch: actions.includes("branch") ? (aside) => branchDialog(this.id, aside) : null,
      },
    });
    element.addEventListener("click", () => this.mark(index));
    return element;
  }

  async full(at) {
    try {
      const data = await get(`/api/session/${this.id}/rows?version=${this.data.version}&from=${at}&count=1&full=1&reveal=${this.reveal ? 1 : 0}`);
      this.rows.put(data.rows[0]);
      this.list.refresh(at, at + 1);
      for (const button of this.list.element(at)?.querySelectorAll("button.more[aria-expanded=false]") || []) button.click();
    } catch (error) {
      tell(error);
    }
  }

  mark(index) {
    const before = this.list.element(this.at);
    if (before) before.classList.remove("at");
    if (before) before.removeAttribute("aria-current");
    this.at = index;
    const now = this.list.element(index);
    if (now) now.classList.add("at");
    if (now) now.setAttribute("aria-current", "true");
    replace(this.map, drawMap(this.data, this.at, (row) => this.go(row)));
  }

  go(index, written = true) {
    if (!this.data || index === null || Number.isNaN(index)) return;
    const to = Math.max(0, Math.min(index, this.data.count - 1));
    this.mark(to);
    this.list.go(to);
    if (written) history.replaceState(null, "", `#/s/${this.id}/at/${to}`);
  }

  step(by) {
    const to = Math.max(0, Math.min(this.at + by, this.data.count - 1));
    this.mark(to);
    this.list.reveal(to);
    history.replaceState(null, "", `#/s/${this.id}/at/${to}`);
  }

  key(event) {
    const { key } = event;
    if (key === "Escape") {
      if (event.target === this.search) this.host.focus();
      else location.hash = "#/";
      return true;
    }
    if (!this.data) return false;
    if (key === "/") this.search.focus();
    else if (key === "j") this.step(1);
    else if (key === "k") this.step(-1);
    else if (key === "n") this.found.rows.length ? this.nextFound(1) : this.nextProblem(1);
    else if (key === "p" || key === "N") this.found.rows.length ? this.nextFound(-1) : this.nextProblem(-1);
    else if (key === "g" || key === "Home") this.go(0);
    else if (key === "G" || key === "End") this.go(this.data.count - 1);
    else if (key === "Enter" && event.target === this.host) this.full(this.at);
    else if (key === "s") this.toggleSecrets();
    else if (key === "r" && this.data.actions.includes("repair")) this.act("repair");
    else if (key === "u" && this.data.actions.includes("undo")) this.act("undo");
    else if (key === "e" && this.data.actions.includes("export")) this.act("export");
    else return false;
    return true;
  }
}
