// All sessions: search, filters, the list.

import { h, button, replace } from "./dom.js";
import { VirtualList } from "./virtual.js";
import { LEVELS, age, brief, several, size } from "./words.js";

const RANK = { broken: 0, unreadable: 1, warning: 2, healthy: 3 };
const AGES = [["", "Any age"], ["86400", "Last day"], ["604800", "Last week"], ["2629800", "Last month"], ["31557600", "Last year"]];
const ORDERS = [["updated", "Newest first"], ["level", "Worst first"], ["size", "Largest first"], ["title", "By title"]];

// What was looked for stays while one goes to a session and back.
const wish = { text: "", level: "", program: "", project: "", age: "", order: "updated", asides: false };
let chosen = "";

export class ListView {
  constructor(state) {
    this.state = state;
    this.rows = [];
    this.at = -1;
  }

  open(main) {
    document.title = "Lockstitch";
    this.search = h("input", {
      type: "search", class: "search", placeholder: "Search titles, projects, ids…", "aria-label": "Search sessions",
      value: wish.text, oninput: () => this.set("text", this.search.value),
      onkeydown: (event) => {
        if (event.key !== "Enter") return;
        this.host.focus();
        this.choose(0);
      },
    });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "State" });
    this.selects = h("div", { class: "selects" });
    this.host = h("div", { class: "list", tabindex: 0, role: "region", "aria-label": "Sessions" });
    this.none = h("div", { class: "empty", hidden: true });
    replace(main, h("div", { class: "list-page" },
      h("h1", { class: "visually-hidden" }, "Sessions"),
      h("div", { class: "filters" }, this.search, this.chips, this.selects), this.none, this.host));
    this.list = new VirtualList(this.host, { height: 64, draw: (index) => this.draw(index) });
    this.news({});
    this.host.focus({ preventScroll: true });
  }

  close() {
    this.list.close();
  }

  news(event) {
    clearTimeout(this.late);
    if (event.rows && this.state.rows.size > 500 && !this.state.scan.is_done) {
      this.late = setTimeout(() => this.filter(), 250);
    } else this.filter();
  }

  set(name, value) {
    wish[name] = value;
    this.filter();
    this.host.scrollTop = 0;
  }

  filter() {
    const words = wish.text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...this.state.rows.values()].filter((row) => wish.asides || !row.is_aside);
    const since = wish.age ? Date.now() / 1000 - Number(wish.age) : 0;
    const fits = (row) => {
      if (wish.program && row.program !== wish.program) return false;
      if (wish.project && row.project !== wish.project) return false;
      if (since && row.updated < since) return false;
      const text = `${row.title} ${row.project} ${row.session} ${row.program} ${row.state} ${row.target}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const found = all.filter(fits);
    this.rows = found.filter((row) => !wish.level || row.level === wish.level).sort(this.order());
    this.drawFilters(all, found);
    this.at = this.rows.findIndex((row) => row.id === chosen);
    const top = this.host.scrollTop;
    this.list.reset(this.rows.length);
    this.host.scrollTop = top;
    this.drawNone(all);
  }

  order() {
    const newest = (a, b) => b.updated - a.updated || (a.id < b.id ? -1 : 1);
    if (wish.order === "level") return (a, b) => RANK[a.level] - RANK[b.level] || newest(a, b);
    if (wish.order === "size") return (a, b) => b.size - a.size || newest(a, b);
    if (wish.order === "title") return (a, b) => a.title.localeCompare(b.title) || newest(a, b);
    return newest;
  }

  drawNone(all) {
    this.none.hidden = this.rows.length > 0;
    this.host.hidden = this.rows.length === 0;
    if (this.rows.length) return;
    if (!this.state.scan.is_done) replace(this.none, h("p", {}, "Looking for sessions…"));
    else if (!all.length) {
      replace(this.none, h("h2", {}, "No sessions here"),
        h("p", {}, "Lockstitch looked where Claude Code, Codex, pi, OpenClaw, Gemini CLI, opencode and goose keep their sessions. `lockstitch ui FOLDER` looks somewhere else."));
    } else {
      replace(this.none, h("h2", {}, "Nothing matches"), h("p", {}, `${several(all.length, "session")} are hidden by the search and the filters.`),
        button("Show all", () => {
          Object.assign(wish, { text: "", level: "", program: "", project: "", age: "" });
          this.search.value = "";
          this.filter();
        }, { class: "primary" }));
    }
  }

  drawFilters(all, found) {
    const focused = document.activeElement && document.activeElement.dataset.level;
    const counts = { "": found.length };
    for (const row of found) counts[row.level] = (counts[row.level] || 0) + 1;
    const chip = (level, label) => button([label, h("b", {}, (counts[level] || 0).toLocaleString("en"))], () => this.set("level", level), {
      class: `chip ${level}`, "aria-pressed": wish.level === level ? "true" : "false", dataset: { level: level || "all" },
    });
    replace(this.chips, chip("", "All"), Object.entries(LEVELS).map(([level, label]) => counts[level] || wish.level === level || level !== "unreadable" ? chip(level, label) : null));
    if (focused) this.chips.querySelector(`[data-level="${focused}"]`)?.focus();
    if (this.selects.contains(document.activeElement)) return;
    const programs = [...new Set(all.map((row) => row.program))].sort();
    const projects = [...new Set(all.map((row) => row.project).filter(Boolean))].sort();
    const asides = [...this.state.rows.values()].filter((row) => row.is_aside).length;
    replace(this.selects,
      programs.length > 1 && this.select("program", "Program", [["", "All programs"], ...programs.map((name) => [name, name])]),
      projects.length > 1 && this.select("project", "Project", [["", "All projects"], ...projects.map((name) => [name, brief(name)])]),
      this.select("age", "Age", AGES), this.select("order", "Order", ORDERS),
      asides > 0 && h("label", { class: "check" }, h("input", { type: "checkbox", checked: wish.asides, onchange: (event) => this.set("asides", event.target.checked) }), `sub-agents and copies (${asides})`));
  }

  select(name, label, options) {
    return h("select", { "aria-label": label, onchange: (event) => this.set(name, event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: wish[name] === value }, text)));
  }

  draw(index) {
    const row = this.rows[index];
    const facts = [row.program, row.project && brief(row.project), row.is_own ? "" : row.session.slice(0, 8)].filter(Boolean);
    return h("div", { class: `item ${row.level} ${index === this.at ? "at" : ""}` },
      h("a", { href: `#/s/${row.id}`, tabindex: -1, onclick: () => this.choose(index) },
        h("span", { class: "dot", "aria-hidden": "true" }),
        h("span", { class: "what" },
          h("span", { class: "title" }, row.title || "(no words yet)"),
          h("span", { class: "facts" }, facts.join("  ·  "))),
        h("span", { class: "state" }, row.level === "healthy" ? LEVELS.healthy.toLowerCase() : row.state),
        h("span", { class: "count" }, row.messages ? several(row.messages, "message") : row.records ? several(row.records, "record") : ""),
        h("span", { class: "size" }, row.size ? size(row.size) : ""),
        h("span", { class: "age", title: row.updated ? new Date(row.updated * 1000).toString() : "" }, row.updated ? age(Date.now() / 1000 - row.updated) : "")));
  }

  choose(index) {
    if (!this.rows.length) return;
    const before = this.at;
    this.at = Math.max(0, Math.min(index, this.rows.length - 1));
    chosen = this.rows[this.at].id;
    for (const one of [before, this.at]) this.list.refresh(one, one + 1);
    this.list.reveal(this.at);
    this.host.setAttribute("aria-label", `Sessions, at ${this.rows[this.at].title}`);
  }

  key(event) {
    const { key } = event;
    if (key === "/") this.search.focus();
    else if (key === "Escape") {
      if (wish.text) {
        this.search.value = "";
        this.set("text", "");
      }
      this.host.focus();
    } else if (key === "j" || key === "ArrowDown") this.choose(this.at + 1);
    else if (key === "k" || key === "ArrowUp") this.choose(this.at - 1);
    else if (key === "g" || key === "Home") this.choose(0);
    else if (key === "G" || key === "End") this.choose(this.rows.length - 1);
    else if (key === "Enter" && this.at >= 0 && !(event.target instanceof HTMLButtonElement)) location.hash = `#/s/${chosen}`;
    else return false;
    return true;
  }
}
