// A long list of which only the rows in sight are in the document; rows have heights of their own.

/** Sums of heights that can be changed one by one: a Fenwick tree. */
class Heights {
  constructor(count, height) {
    this.count = count;
    this.own = new Float64Array(count).fill(height);
    this.tree = new Float64Array(count + 1);
    for (let at = 1; at <= count; at += 1) {
      this.tree[at] += height;
      const next = at + (at & -at);
      if (next <= count) this.tree[next] += this.tree[at];
    }
    this.top = 1;
    while (this.top * 2 <= count) this.top *= 2;
  }

  set(index, height) {
    const change = height - this.own[index];
    this.own[index] = height;
    for (let at = index + 1; at <= this.count; at += at & -at) this.tree[at] += change;
    return change;
  }

  before(index) {
    let sum = 0;
    for (let at = index; at > 0; at -= at & -at) sum += this.tree[at];
    return sum;
  }

  at(offset) {
    let index = 0;
    let left = offset;
    for (let step = this.top; step; step >>= 1) {
      if (index + step <= this.count && this.tree[index + step] <= left) {
        index += step;
        left -= this.tree[index];
      }
    }
    return Math.min(index, Math.max(this.count - 1, 0));
  }
}

const BEYOND = 600;
// How much of what stands before it is left in sight above a row that one goes to.
const ABOVE = 64;

export class VirtualList {
  /** `draw(index)` gives an element; `seen(start, stop)` is told which rows are in sight. */
  constructor(host, { height, draw, seen }) {
    this.host = host;
    this.estimate = height;
    this.draw = draw;
    this.seen = seen || (() => {});
    this.inner = document.createElement("div");
    this.inner.className = "virtual";
    this.inner.setAttribute("role", "list");
    host.append(this.inner);
    this.shown = new Map();
    this.pinned = -1;
    this.heights = new Heights(0, height);
    this.sizes = new ResizeObserver(() => this.soon());
    this.sizes.observe(host);
    host.addEventListener("scroll", () => this.soon(), { passive: true });
    host.addEventListener("wheel", () => this.unpin(), { passive: true });
    host.addEventListener("touchmove", () => this.unpin(), { passive: true });
    host.addEventListener("pointerdown", () => this.unpin(), { passive: true });
  }

  unpin() {
    this.pinned = -1;
  }

  close() {
    this.sizes.disconnect();
  }

  reset(count) {
    this.heights = new Heights(count, this.estimate);
    this.refresh();
  }

  /** Draw anew what is in sight: all, or some rows. */
  refresh(start = 0, stop = Infinity) {
    for (const [index, element] of this.shown) {
      if (index >= start && index < stop) this.drop(index, element);
    }
    this.lay();
  }

  drop(index, element) {
    this.sizes.unobserve(element);
    element.remove();
    this.shown.delete(index);
  }

  soon() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => {
      this.due = 0;
      this.lay();
    });
  }

  lay() {
    const { host, heights } = this;
    if (this.pinned >= 0) host.scrollTop = heights.before(this.pinned) - ABOVE;
    const top = host.scrollTop;
    const first = heights.at(Math.max(top - BEYOND, 0));
    let stop = first;
    let offset = heights.before(first);
    while (stop < heights.count && offset < top + host.clientHeight + BEYOND) {
      offset += heights.own[stop];
      stop += 1;
    }
    for (const [index, element] of this.shown) {
      if (index < first || index >= stop) this.drop(index, element);
    }
    for (let index = first; index < stop; index += 1) this.show(index);
    this.measure(top);
    this.seen(first, stop);
  }

  show(index) {
    if (this.shown.has(index)) return;
    const element = this.draw(index);
    element.setAttribute("role", "listitem");
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", this.heights.count);
    element.dataset.index = index;
    this.shown.set(index, element);
    const after = this.shown.get(index + 1);
    this.inner.insertBefore(element, after || this.next(index));
    this.sizes.observe(element);
  }

  /** The element of the next row that is in the document, so that the order stays right. */
  next(index) {
    let found = null;
    let best = Infinity;
    for (const [other, element] of this.shown) {
      if (other > index && other < best) {
        best = other;
        found = element;
      }
    }
    return found;
  }

  measure(top) {
    const { heights } = this;
    const anchor = heights.at(top);
    let moved = 0;
    let changed = false;
    for (const [index, element] of this.shown) {
      const height = element.offsetHeight;
      if (height && Math.abs(height - heights.own[index]) > 0.5) {
        const change = heights.set(index, height);
        if (index < anchor) moved += change;
        changed = true;
      }
    }
    for (const [index, element] of this.shown) {
      element.style.transform = `translateY(${heights.before(index)}px)`;
    }
    this.inner.style.height = `${heights.before(heights.count)}px`;
    if (this.pinned >= 0) {
      this.host.scrollTop = heights.before(this.pinned) - ABOVE;
    } else if (moved) {
      this.host.scrollTop += moved;
    }
    if (changed) this.soon();
  }

  /** Bring a row to the top, and keep it there while others are drawn and measured. */
  go(index) {
    this.pinned = Math.max(0, Math.min(index, this.heights.count - 1));
    this.lay();
  }

  /** Bring a row into sight with as little movement as can be. */
  reveal(index) {
    const top = this.heights.before(index);
    const bottom = top + this.heights.own[index];
    const { scrollTop, clientHeight } = this.host;
    if (top < scrollTop || bottom > scrollTop + clientHeight) {
      const fits = bottom - top < clientHeight;
      if (top < scrollTop || !fits) this.go(index);
      else {
        this.unpin();
        this.host.scrollTop = bottom - clientHeight;
        this.lay();
      }
    }
  }

  element(index) {
    return this.shown.get(index) || null;
  }
}
