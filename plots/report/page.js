// Tables of the page: a click on a head sorts, a button copies as CSV. Without this the page is whole.
"use strict";
for (const table of document.querySelectorAll("table")) {
  const rows = () => [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const number = (text) => parseFloat(text.replace(/,/g, ""));
  const sort = (head, column) => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    const cells = rows().map((row) => [row.cells[column].textContent.trim(), row]);
    const byNumber = cells.every(([text]) => !text || text === "-" || !isNaN(number(text)));
    const compare = ([a], [b]) =>
      byNumber ? (number(a) || 0) - (number(b) || 0) : a.localeCompare(b, "en", { numeric: true });
    cells.sort((a, b) => (rising ? compare(a, b) : compare(b, a)));
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    table.tBodies[0].append(...cells.map(([, row]) => row));
  };
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "sort";
    head.addEventListener("click", () => sort(head, column));
    head.addEventListener("keydown", (key) => key.key === "Enter" && sort(head, column));
  });
  const quoted = (cell) => {
    const text = cell.textContent.trim();
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const csv = () =>
    [table.tHead.rows[0], ...rows()].map((row) => [...row.cells].map(quoted).join(",")).join("\n");
  const button = document.createElement("button");
  button.textContent = "copy as CSV";
  button.className = "copy";
  button.addEventListener("click", async () => {
    // a page from a file has no clipboard in some browsers: an old way that all have is the second
    try {
      await navigator.clipboard.writeText(csv());
    } catch {
      const area = document.createElement("textarea");
      area.value = csv();
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
  });
  table.after(button);
}
