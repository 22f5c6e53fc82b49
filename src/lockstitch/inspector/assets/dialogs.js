// Dialogs: nothing is changed before one of these said what, and was agreed to.

import { download, post } from "./api.js";
import { h, button, replace, toast } from "./dom.js";
import { several, size } from "./words.js";

function opened(title, css) {
  const head = h("h2", { id: "dialog-title" }, title);
  const body = h("div", { class: "dialog-body", tabindex: 0, role: "region", "aria-labelledby": "dialog-title" });
  const foot = h("div", { class: "dialog-foot" });
  const dialog = h("dialog", { class: css || "", "aria-labelledby": "dialog-title" }, head, body, foot);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  // What is to have the focus is put in first.
  queueMicrotask(() => dialog.showModal());
  return { dialog, head, body, foot, close: () => dialog.close() };
}

const KEYS = [
  ["j / k", "next and previous"], ["Enter", "open"], ["Esc", "back, or clear the search"], ["/", "search"],
  ["n / p", "next and previous problem"], ["g / G", "first and last"], ["r", "repair"], ["u", "undo"], ["e", "export"],
  ["s", "show or mask secrets"], ["t", "light or dark"], ["?", "this list"],
];

export function helpDialog() {
  const made = opened("Keys", "small");
  made.body.append(h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
  made.foot.append(button("Close", made.close, { class: "primary", autofocus: true }));
}

function drawChanges(plan) {
  if (!plan.changes.length) return null;
  const shown = plan.changes.slice(0, 200);
  const left = plan.changes.length - shown.length;
  return h("section", {}, h("h3", {}, several(plan.changes.length, "change")),
    h("ol", { class: "changes" }, shown.map((one) => h("li", {}, h("b", {}, one.action), " at ", h("code", {}, one.place), ": ", one.note, " ", h("span", { class: "code" }, one.code)))),
    left > 0 && h("p", { class: "faint" }, `and ${left} more`),
    plan.quarantine.length > 0 && h("p", {}, `${several(plan.quarantine.length, "piece")} (${size(plan.quarantine.reduce((sum, one) => sum + one.size, 0))}) will be taken out and kept with the backup.`));
}

const KINDS = { new: "new, behind", gone: "taken out at", changed: "at" };

function drawSide(kind, text, side) {
  const css = kind === "same" ? "" : text === null ? "void" : side;
  return h("td", { class: css }, text === null ? "" : text);
}

function drawLine([kind, before, after]) {
  if (kind === "fold") return h("tr", { class: "fold" }, h("td", { colspan: 2 }, `${several(Number(before), "line")} the same`));
  return h("tr", { class: kind }, drawSide(kind, before, "old"), drawSide(kind, after, "new"));
}

function drawRecords(plan) {
  if (!plan.records.length) return null;
  return h("section", {}, h("h3", {}, "Side by side"),
    plan.records.map((record, number) => h("div", { class: "record" },
      h("p", { class: "record-head" }, `${KINDS[record.kind]} `, h("code", {}, record.place)),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Record ${number + 1} of the plan` },
        h("table", { class: "diff" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Now"), h("th", { scope: "col" }, "After"))),
          h("tbody", {}, record.lines.map(drawLine)))))),
    plan.more > 0 && h("p", { class: "faint" }, `and ${several(plan.more, "more record")}`));
}

function drawPlan(plan) {
  return [
    plan.refusal && h("p", { class: "refusal", role: "alert" }, `This cannot be done now: ${plan.refusal}.`),
    h("ul", { class: "says" }, plan.says.map((text) => h("li", {}, text))), drawChanges(plan), drawRecords(plan)];
}

const FIELDS = {
  repair: (options) => [
    choice("How", "strategy", options, [["close", "Answer open calls, keep everything"], ["rollback", "Go back to the last complete turn"]]),
    tick("Also repairs that remove something, such as broken images", "lossy", options),
  ],
  compact: (options) => [number("Tokens that a request may have afterwards", "budget", options)],
  fork: (options) => [text("Name of the new session", "name", options)],
};

function choice(label, name, options, values) {
  return h("label", {}, label, h("select", { onchange: (event) => { options[name] = event.target.value; } },
    values.map(([value, words]) => h("option", { value, selected: options[name] === value }, words))));
}

function tick(label, name, options) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked: options[name], onchange: (event) => { options[name] = event.target.checked; } }), label);
}

function number(label, name, options) {
  return h("label", {}, label, h("input", { type: "number", min: 1000, step: 1000, value: options[name], onchange: (event) => { options[name] = Number(event.target.value); } }));
}

function text(label, name, options) {
  return h("label", {}, label, h("input", { type: "text", value: options[name] || "", autocomplete: "off", onchange: (event) => { options[name] = event.target.value; } }));
}

const BEGIN = { repair: { strategy: "close", lossy: false }, compact: { budget: 120000 }, fork: { name: "" } };
const TITLES = { repair: "Repair this session", undo: "Undo the last repair", compact: "Make this session shorter", fork: "Make a new session from this one" };

/** Say what an action would do, ask, and do it; gives what was done, or null. */
export function actionDialog(id, action, given) {
  const options = { ...BEGIN[action], ...given };
  const made = opened(TITLES[action] || "Change this session", action === "repair" ? "wide" : "");
  const fields = h("fieldset", { class: "fields" }, h("legend", { class: "visually-hidden" }, "Options"));
  const words = h("div", { class: "plan" }, h("p", { class: "faint" }, "Working it out…"));
  const cancel = button("Cancel", made.close, { autofocus: true });
  const agree = button("…", null, { class: "primary", disabled: true });
  made.body.append(fields, words);
  made.foot.append(cancel, agree);
  let plan = null;
  return new Promise((resolve) => {
    async function look() {
      agree.disabled = true;
      try {
        plan = await post(`/api/session/${id}/plan`, { action, options });
        replace(made.head, plan.title);
        replace(words, drawPlan(plan));
        replace(agree, plan.button);
        agree.disabled = Boolean(plan.refusal);
      } catch (error) {
        replace(words, h("p", { class: "refusal", role: "alert" }, error.message));
      }
    }
    if (FIELDS[action]) {
      fields.append(...FIELDS[action](options));
      fields.addEventListener("change", look);
    } else fields.hidden = true;
    made.dialog.addEventListener("close", () => resolve(null));
    agree.addEventListener("click", async () => {
      agree.disabled = cancel.disabled = true;
      try {
        const done = await post(`/api/session/${id}/do`, { action, options, stamp: plan.stamp });
        resolve(done.says);
        made.close();
      } catch (error) {
        cancel.disabled = false;
        words.prepend(h("p", { class: "refusal", role: "alert" }, error.message));
        made.body.scrollTop = 0;
      }
    });
    look();
  });
}

/** Ask how a session is to be written, and save it. */
export function exportDialog(id, dialects) {
  const options = { dialect: "", redact: "secrets" };
  const made = opened("Export this session");
  made.body.append(
    h("ul", { class: "says" }, h("li", {}, "The messages that a resume would send will be saved as a JSON file, healed."), h("li", {}, "The session itself is only read and stays as it is.")),
    h("fieldset", { class: "fields" }, h("legend", { class: "visually-hidden" }, "Options"),
      choice("Wire format", "dialect", options, [["", "As stored"], ...dialects.map((name) => [name, name])]),
      choice("Secrets", "redact", options, [["secrets", "Remove secrets"], ["all", "Remove secrets and personal data"], ["", "Leave everything in"]])));
  const save = button("Save file", async () => {
    save.disabled = true;
    try {
      toast(`Saved ${await download(`/api/session/${id}/export`, options)}.`);
      made.close();
    } catch (error) {
      save.disabled = false;
      made.body.prepend(h("p", { class: "refusal", role: "alert" }, error.message));
    }
  }, { class: "primary" });
  made.foot.append(button("Cancel", made.close, { autofocus: true }), save);
}

export function branchDialog(id, aside) {
  const made = opened("Save a branch as a session");
  made.body.append(h("ul", { class: "says" },
    h("li", {}, `The branch that starts at line ${aside.place} (${several(aside.turns, "turn")}) will be saved as a new session file, which its program can resume.`),
    h("li", {}, "The session itself is only read and stays as it is.")));
  const save = button("Save file", async () => {
    try {
      toast(`Saved ${await download(`/api/session/${id}/branch`, { place: aside.place })}.`);
      made.close();
    } catch (error) {
      made.body.prepend(h("p", { class: "refusal", role: "alert" }, error.message));
    }
  }, { class: "primary" });
  made.foot.append(button("Cancel", made.close, { autofocus: true }), save);
}
