// Makes plot.js and LICENSES.txt: `npm ci --ignore-scripts=false && node build.mjs`.
import {build} from "esbuild";
import {readFileSync, readdirSync, writeFileSync} from "node:fs";

const {metafile} = await build({
  entryPoints: ["entry.js"], bundle: true, minify: true, format: "iife", globalName: "Plot",
  outfile: "plot.js", metafile: true, legalComments: "none", charset: "ascii"
});
const used = Object.entries(metafile.outputs["plot.js"].inputs).filter(([, part]) => part.bytesInOutput > 0);
const folders = new Set(used.flatMap(([path]) => path.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/)?.[0] ?? []));
const texts = [...folders].sort().map((folder) => {
  const {name, version, license} = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : `${license} licence; the package has no copy of its text`;
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync("LICENSES.txt", `plot.js contains code of these packages.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`);
