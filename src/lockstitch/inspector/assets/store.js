// A Lockstitch store at a glance.

import { get } from "./api.js";
import { h, replace, s } from "./dom.js";
import { tell } from "./main.js";
import { ago, moment, several, size } from "./words.js";

export class StoreView {
  constructor(state) {
    this.state = state;
  }

  async open(main) {
    this.box = h("div", { class: "store" }, h("h1", {}, "Store"), h("p", { class: "faint" }, "Reading…"));
    replace(main, this.box);
    document.title = "Store · Lockstitch";
    try {
      const data = await get("/api/store");
      if (!this.closed) this.draw(data);
    } catch (error) {
      tell(error);
    }
  }

  close() {
    this.closed = true;
  }

  link(session) {
    const row = [...this.state.rows.values()].find((one) => one.session === session);
    return row ? h("a", { href: `#/s/${row.id}` }, session) : session;
  }

  draw(data) {
    const rows = [...this.state.rows.values()];
    const bytes = rows.reduce((sum, row) => sum + row.size, 0);
    const bad = rows.filter((row) => row.level !== "healthy").length;
    const card = (value, label) => h("div", { class: "card" }, h("b", {}, value), h("span", {}, label));
    const largest = [...rows].sort((a, b) => b.size - a.size).slice(0, 10);
    replace(this.box, h("div", {}, h("h1", {}, "Store"), h("p", { class: "faint" }, this.state.hello.target)),
      h("div", { class: "cards" }, card(data.sessions.toLocaleString("en"), "sessions"), card(data.records.toLocaleString("en"), "records"),
        card(size(bytes), "content"), card(String(data.held_in_all), "held by a writer"), card(String(bad), "need a look")),
      h("section", {}, h("h2", {}, "Sessions over time"), this.chart(data.days)),
      h("section", {}, h("h2", {}, "Who holds sessions"), data.held.length ? this.table(["Session", "Holder", "Epoch", "Last record"],
        data.held.map((one) => [this.link(one.session), one.holder, one.epoch, one.at ? ago((Date.now() - one.at) / 1000) : ""])) : h("p", { class: "faint" }, "Nobody writes to a session now.")),
      h("section", {}, h("h2", {}, "Largest sessions"), this.table(["Session", "Size", "Records", "Messages"],
        largest.map((row) => [this.link(row.session), size(row.size), row.records.toLocaleString("en"), row.messages.toLocaleString("en")]))),
      h("section", {}, h("h2", {}, "Compactions"), data.compactions.length ? this.table(["Session", "Record", "Replaces", "When"],
        data.compactions.map((one) => [this.link(one.session), one.seq, one.through ? `all up to record ${one.through}` : "old results, shortened", moment(one.at)]))
        : h("p", { class: "faint" }, `None in the ${several(data.read, "session")} that changed last.`)));
  }

  table(heads, rows) {
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell instanceof Node ? cell : String(cell))))))));
  }

  chart(days) {
    if (!days.length) return h("p", { class: "faint" }, "No sessions yet.");
    const most = Math.max(...days.map((day) => Math.max(day.begun, day.changed)), 1);
    const step = 100 / days.length;
    const bars = days.flatMap((day, index) => ["changed", "begun"].map((kind) => s("rect", {
      x: `${index * step + step * 0.15}%`, width: `${Math.min(step * 0.7, 4)}%`, y: 120 - (day[kind] / most) * 112, height: (day[kind] / most) * 112, rx: 2, class: kind,
    }, s("title", {}, `${day.day}: ${day.begun} begun, ${day.changed} last changed`))));
    return h("figure", { class: "chart" },
      s("svg", { width: "100%", height: 122, role: "img", "aria-label": `Sessions per day from ${days[0].day} to ${days.at(-1).day}, at most ${most}` }, s("line", { x1: 0, x2: "100%", y1: 121, y2: 121, class: "axis" }), bars),
      h("figcaption", {}, h("span", {}, days[0].day), h("span", { class: "legend" }, h("i", { class: "begun" }), "begun", h("i", { class: "changed" }), "last changed"), h("span", {}, days.at(-1).day)));
  }
}
