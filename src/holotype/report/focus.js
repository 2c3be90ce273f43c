// Where the keyboard is among the images, and where it goes on after an edit.

const CONTROLS = "a, button:not([tabindex]), input, select, summary";
let cursor = null; // the gallery of which an image had the focus last; its `position` says which
let closeUp = null; // the image that is shown large, as a list with a position likewise

/** Fill an element anew: the control that had the focus has it again, or else the keyboard goes back to its image. */
function refill(element, children) {
  const controls = () => [...element.querySelectorAll(CONTROLS)];
  const holder = document.activeElement;
  const at = controls().indexOf(holder);
  element.replaceChildren(...children);
  if (holder.isConnected) return;
  controls()[at]?.focus({ preventScroll: true });
  if (document.activeElement === document.body) returnFocus();
}

/** To the image that the keyboard was at, or the next one that is still there, or the last. */
function returnFocus() {
  const gallery = [...document.querySelectorAll("main .gallery")].map((element) => element.gallery).find(({ id, list }) => id === cursor?.id && list.length);
  if (closeUp) closeUp.element.focus();
  else if (gallery) {
    const there = new Set(gallery.list);
    const next = cursor.list.slice(cursor.position).find((i) => there.has(i));
    gallery.focus(next === undefined ? gallery.list.length - 1 : gallery.list.indexOf(next));
  } else if (document.activeElement === document.body) (map.canvas ?? document.getElementById("main")).focus({ preventScroll: true });
}

/** After an edit: to the first image that an undo brought back, else to the next one that was not edited, else to the last. */
function goOn({ edited = [], undone = [] }) {
  returnFocus();
  const spot = closeUp ?? cursor;
  if (!spot) return;
  const [done, back] = [new Set(edited), new Set(undone)];
  const returned = spot.list.findIndex((i) => back.has(i));
  const next = spot.list.findIndex((i, at) => at >= spot.position && !done.has(i));
  spot.focus([returned, next].find((at) => at >= 0) ?? spot.list.length - 1);
}

/** What a command is about: the image that is shown large, else the selection, else the image that has the focus. */
function targets() {
  if (closeUp) return [closeUp.list[closeUp.position]];
  if (selected.size) return [...selected];
  const tile = document.activeElement.closest(".tile[data-image]");
  if (tile) return [Number(tile.dataset.image)];
  return map.canvas && document.activeElement === map.canvas && map.keys >= 0 ? [map.keys] : [];
}
