// Give the cells of tables with three or more columns the names of their columns, which
// site.css shows on narrow screens.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.innerText.trim());
    if (names.length < 3) continue;
    table.classList.add("wide");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, column) => (cell.dataset.column = names[column]));
  }
});
