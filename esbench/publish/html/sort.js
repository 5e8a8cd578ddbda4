// Columns of a table with the class "sortable" or "results" are sorted by a click on their heading,
// or with Enter or space on it: numbers from the largest one, and names from A. Groups stay together.
{
  const UNITS = { k: 1e3, M: 1e6, G: 1e9, s: 1, min: 60, h: 3600 };

  // A number as it is written: -1073, 1.235e+06, 1.5 k, [0.2, 0.4], 3 min 5 s, 4/10, 95 %; else null.
  function numberOf(text) {
    const found = text.match(/^[[<*\s]*(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: (k|M|G|s|min|h)\b)?(?: (\d+) (s|min)$)?/);
    if (!found) return null;
    const [, number, unit, more, smaller] = found;
    const value = Number(number.replaceAll(",", "")) * (UNITS[unit] ?? 1);
    return more ? value + Number(more) * UNITS[smaller] : value;
  }

  function valueOf(row, column) {
    const cell = row.cells[column];
    const text = (cell?.dataset.value ?? cell?.textContent ?? "").trim();
    return { text, number: numberOf(text) };
  }

  const isEmpty = ({ text }) => text === "" || text === "-" || text === "nan";

  function sort(table, heading) {
    const column = heading.cellIndex;
    const bodies = [...table.tBodies].map((body) => ({
      body,
      rows: [...body.rows].filter((row) => row.cells.length > 1).map((row) => ({ row, value: valueOf(row, column) })),
    }));
    const values = bodies.flatMap(({ rows }) => rows.map(({ value }) => value)).filter((value) => !isEmpty(value));
    const isNumeric = 2 * values.filter(({ number }) => number !== null).length > values.length;
    const isLast = (value) => isEmpty(value) || (isNumeric && value.number === null);
    const first = isNumeric ? "descending" : "ascending";
    const other = isNumeric ? "ascending" : "descending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    const compare = (a, b) => {
      if (isLast(a.value) || isLast(b.value)) return isLast(a.value) - isLast(b.value);
      return sign * (isNumeric ? a.value.number - b.value.number : a.value.text.localeCompare(b.value.text, "en", { numeric: true }));
    };
    for (const { body, rows } of bodies) body.append(...rows.sort(compare).map(({ row }) => row));
    for (const each of heading.parentElement.cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
  }

  for (const table of document.querySelectorAll("table.sortable, table.results")) {
    for (const heading of table.tHead?.rows[0]?.cells ?? []) {
      if (heading.tagName !== "TH" || !heading.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  }
}
