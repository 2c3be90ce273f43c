// edits.csv as results/edits.py reads and writes it. Pure: nothing here knows of a page.

const EDITS_FORMAT = "2"; // stands in the last column
const READABLE_FORMATS = ["", "1", EDITS_FORMAT]; // files of format 1 have no digests
const REQUIRED = COLUMNS.filter((column) => !["digest", "by"].includes(column));
const RISKY = /^[=+\-@\t\r']/;

/** A cell that no spreadsheet takes for a formula, and its inverse. */
const guarded = (cell) => (RISKY.test(cell) ? `'${cell}` : cell);
const bare = (cell) => (cell[0] === "'" && RISKY.test(cell.slice(1)) ? cell.slice(1) : cell);
const quoted = (cell) => (/[",\r\n]|^ /.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

const toCsv = (list) =>
  [[...COLUMNS, "format"], ...list.map((edit) => [...COLUMNS.map((column) => guarded(edit[column] ?? "")), EDITS_FORMAT])]
    .map((cells) => cells.map(quoted).join(",") + "\n").join("");

/** Rows of cells. A field in quotes may hold separators, quotes twice, and line ends. */
function parseCsv(text) {
  text = text.replace(/^\ufeff/, "");
  const head = text.split("\n", 1)[0];
  const separator = head.split(";").length > head.split(",").length ? ";" : ",";
  const rows = [[]];
  let cell = "";
  let inside = false;
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (inside) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else inside = false;
    } else if (sign === '"' && cell === "") inside = true;
    else if (sign === separator || sign === "\n" || sign === "\r") {
      rows[rows.length - 1].push(cell);
      cell = "";
      if (sign === "\r" && text[at + 1] === "\n") at++;
      if (sign !== separator) rows.push([]);
    } else cell += sign;
  }
  if (cell !== "" || rows[rows.length - 1].length) rows[rows.length - 1].push(cell);
  return rows;
}

/** The edits in a file, in its order; problem says in a sentence why it is none ("" = it is one). */
function readEdits(text) {
  const [head, ...rows] = parseCsv(text).filter((row) => row.some((cell) => cell !== ""));
  const none = (problem) => ({ edits: [], problem });
  const missing = REQUIRED.find((column) => !head || !head.includes(column));
  if (missing) return none(`This is not an edits file: it has no column ${missing}.`);
  const cellOf = (row, column) => row[head.lastIndexOf(column)] ?? "";
  const told = rows.filter((row) => REQUIRED.some((column) => cellOf(row, column) !== ""));
  if (told.some((row) => row.slice(head.length).some((cell) => cell !== ""))) {
    return none("A line has more cells than columns; put a text with a comma in quotation marks.");
  }
  const other = told.map((row) => stripped(cellOf(row, "format"))).find((format) => !READABLE_FORMATS.includes(format));
  if (other !== undefined) return none(`This file is of format ${other}, and this page reads format ${EDITS_FORMAT}.`);
  const edits = told.map((row) => Object.fromEntries(COLUMNS.map((column) => [column, bare(cellOf(row, column))])));
  const odd = edits.find((edit) => edit.action !== UNDO && !Object.hasOwn(ACTIONS, edit.action));
  return odd ? none(`There is no action ${odd.action}; the actions are ${Object.keys(ACTIONS).join(", ")}.`) : { edits: inEffect(edits), problem: "" };
}
