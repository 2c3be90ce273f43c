// Words in which other categories are named, with the names of today, as results/describe.py has it. Pure.

/** What tells of a category at the end of a note. */
const NAMED_IN_NOTES = ["the model would say ", "most frames of its burst are in "];

/** How a category stands to known classes, as these are called now. names: from those of before. */
function renamedWords(words, names) {
  if (!names.size) return words;
  const before = [...names.keys()].sort((a, b) => b.length - a.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const place = new RegExp(`(closest to |nearest | and |; unlike )(${before.join("|")})(?= -?\\d\\.\\d\\d|$| \\(before )`, "g");
  return words.replace(place, (_, joint, name) => joint + names.get(name));
}

/** A suggested name of a new category likewise. */
function renamedSuggestion(suggested, names) {
  const [, near, number] = /^near (.+), new (\d+)$/s.exec(suggested) ?? [];
  return names.has(near) ? `near ${names.get(near)}, new ${number}` : suggested;
}

/** The note of an image likewise. */
function renamedNote(note, names) {
  for (const words of NAMED_IN_NOTES) {
    const at = note.lastIndexOf(words);
    const name = note.slice(at + words.length);
    if (at >= 0 && names.has(name)) return note.slice(0, at) + words + names.get(name);
  }
  return note;
}
