// Elements, made of values; every text is set as text, and what hides or reorders is made visible.

const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\r(?!\n)|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

const NAMES = { "\u001b": "ESC", "\u0000": "NUL", "\u0007": "BEL", "\b": "BS", "\r": "CR", "\u007f": "DEL" };

function named(char) {
  return NAMES[char] || `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A text for an attribute: what hides or reorders is written out. */
export function plain(text) {
  return String(text).replace(HIDDEN, (char) => `<${named(char)}>`);
}

/** A text as nodes: what hides or reorders is shown as a mark of its own. */
export function nodes(text) {
  const made = [];
  let start = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > start) made.push(document.createTextNode(text.slice(start, match.index)));
    const mark = document.createElement("span");
    mark.className = "hidden-char";
    mark.textContent = named(match[0]);
    made.push(mark);
    start = match.index + match[0].length;
  }
  if (start < text.length) made.push(document.createTextNode(text.slice(start)));
  return made;
}

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (child instanceof Node) element.append(child);
    else element.append(...nodes(String(child)));
  }
  return element;
}

function dress(element, props) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : plain(value));
  }
  return element;
}

export function h(tag, props, ...children) {
  return fill(dress(document.createElement(tag), props), children);
}

export function s(tag, props, ...children) {
  return fill(dress(document.createElementNS("http://www.w3.org/2000/svg", tag), props), children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  return fill(element, children);
}

export function button(label, onclick, props) {
  return h("button", { type: "button", onclick, ...props }, label);
}

/** A short notice that goes away by itself; a failure stays longer. */
export function toast(text, kind) {
  const box = document.getElementById("toasts");
  const note = h("div", { class: `toast ${kind || ""}` }, text);
  box.append(note);
  setTimeout(() => note.remove(), kind === "bad" ? 12000 : 6000);
}

export function typing(event) {
  const at = event.target;
  return at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
}
