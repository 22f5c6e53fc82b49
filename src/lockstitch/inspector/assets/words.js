// Numbers and times for people.

const UNITS = ["B", "kB", "MB", "GB"];

export function size(bytes) {
  let unit = 0;
  let count = bytes;
  while (count >= 1000 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return unit ? `${count.toFixed(1)} ${UNITS[unit]}` : `${count} B`;
}

export function several(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

const STEPS = [["y", 31557600], ["mo", 2629800], ["d", 86400], ["h", 3600], ["min", 60]];

/** How long ago, in the fewest letters: `3 h`. */
export function age(seconds) {
  for (const [unit, length] of STEPS) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return "now";
}

export function ago(seconds) {
  const said = age(seconds);
  return said === "now" ? "just now" : `${said} ago`;
}

export function moment(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export function clock(value) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** The last two steps of a path. */
export function brief(path) {
  const steps = path.split("/").filter(Boolean);
  return steps.length > 2 ? `…/${steps.slice(-2).join("/")}` : path;
}

export const LEVELS = {
  broken: "Broken",
  unreadable: "Unreadable",
  warning: "Warnings",
  healthy: "Healthy",
};
