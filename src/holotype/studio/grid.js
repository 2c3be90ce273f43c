// A grid for any number of images: cells of one size, of which the page holds those near the visible part.

const MOST_CELLS = 320; // of one grid; wide screens have fewer rows above and below
const CAPTION_REM = 3.5;
const grids = new Set();
let drawing = 0;

/** All grids follow the window, once a frame. */
function drawGrids() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    for (const grid of grids) {
      if (grid.grid.isConnected) grid.draw();
      else grids.delete(grid);
    }
  });
}
addEventListener("scroll", drawGrids, { passive: true });

/** A picture is asked for once it has stayed near for a moment: who scrolls by asks for none. */
const staying = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    setTimeout(() => {
      if (!target.isConnected) return;
      target.style.backgroundImage = `url("${target.dataset.picture}")`;
      staying.unobserve(target);
    }, 60);
  }
}, { rootMargin: "300px" });

class VirtualGallery extends Gallery {
  constructor(list, options) {
    super(list, options);
    this.watch.disconnect();
    this.width = 0;
    this.shown = list.length; // the End key goes to the last one
    this.tiles = new Map(); // position -> tile, those that the page holds
    this.grid.classList.add("virtual");
    new ResizeObserver(() => this.measure() && this.draw()).observe(this.grid);
    grids.add(this);
  }

  more() {} // instead of growing, it draws

  columns() {
    return this.across;
  }

  /** Sizes of the cells, from the width that there is; returns whether there is any. */
  measure() {
    if (this.grid.clientWidth === this.width) return this.width > 0;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const [least, gap] = innerWidth < 34 * rem ? [96, 0.4 * rem] : [112, 0.55 * rem];
    const width = (this.width = this.grid.clientWidth);
    this.across = Math.max(1, Math.floor((width + gap) / (least + gap)));
    this.side = (width - gap * (this.across - 1)) / this.across;
    this.tall = this.side + (this.caption ? CAPTION_REM * rem : 0);
    this.step = [this.side + gap, this.tall + gap];
    const rows = Math.ceil(this.list.length / this.across);
    this.grid.style.height = `${Math.max(0, rows * this.step[1] - gap)}px`;
    this.tiles.forEach((tile, position) => this.put(tile, position));
    return width > 0;
  }

  draw() {
    if (!this.width && !this.measure()) return;
    const { top } = this.grid.getBoundingClientRect();
    const visible = Math.ceil(innerHeight / this.step[1]) + 1;
    const spare = Math.max(0, Math.min(visible, Math.floor(MOST_CELLS / this.across - visible) >> 1));
    const first = Math.max(0, Math.floor(-top / this.step[1]) - spare);
    const last = Math.ceil((innerHeight - top) / this.step[1]) + spare;
    const [from, to] = [first * this.across, Math.min(this.list.length, last * this.across)];
    for (const [position, tile] of this.tiles) {
      if ((position >= from && position < to) || position === this.position) continue;
      tile.remove();
      this.tiles.delete(position);
    }
    if (this.position < from && this.list.length) this.hold(this.position); // the keyboard comes back to it
    for (let position = from; position < to; position++) this.hold(position);
    if (this.position >= to && this.list.length) this.hold(this.position);
  }

  /** The tile of a position, in the order of the list and at its place. */
  hold(position) {
    if (this.tiles.has(position)) return this.tiles.get(position);
    const tile = this.tile(position);
    tile.setAttribute("tabindex", position === this.position ? 0 : -1);
    tile.setAttribute("aria-posinset", position + 1);
    tile.setAttribute("aria-setsize", this.list.length);
    this.put(tile, position);
    this.tiles.set(position, tile);
    this.grid.insertBefore(tile, this.tiles.get(position - 1)?.nextSibling ?? this.tiles.get(position + 1)
      ?? [...this.grid.children].find((other) => Number(other.dataset.position) > position) ?? null);
    return tile;
  }

  put(tile, position) {
    const [x, y] = [(position % this.across) * this.step[0], Math.floor(position / this.across) * this.step[1]];
    tile.style.cssText = `width:${this.side}px;height:${this.tall}px;transform:translate(${x}px,${y}px)`;
  }

  focus(position) {
    this.element.closest("details")?.setAttribute("open", "");
    if (!this.list.length || !this.measure()) return;
    this.hold(Math.min(position, this.list.length - 1)).focus();
    drawGrids();
  }
}
