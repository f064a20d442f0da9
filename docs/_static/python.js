// Python in a worker: own.js starts it when a reader first touches a demo that computes. Nothing comes from another host.
const here = new URL("python/", location.href).href;
const FILES = { "pyodide.asm.wasm": 1, "python_stdlib.zip": 1, "pyodide.asm.js": 1, "viz-global.js": 1 };

// Fetch the large files first, only to tell how far it is; what asks for them next finds them in the browser's cache.
async function fetched() {
  const sizes = await (await fetch(`${here}sizes.json`)).json();
  const total = Object.keys(FILES).reduce((sum, name) => sum + sizes[name], 0);
  let done = 0;
  await Promise.all(Object.keys(FILES).map(async name => {
    const reader = (await fetch(here + name)).body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      done += part.value.length;
      postMessage({ progress: Math.min(0.9, 0.9 * done / total) });
    }
  }));
}

const ready = (async () => {
  await fetched();
  importScripts(`${here}pyodide.js`, `${here}viz-global.js`);
  const [python, graphviz] = await Promise.all([loadPyodide({ indexURL: here }), Viz.instance()]);
  postMessage({ progress: 0.95 });
  python.unpackArchive(await (await fetch(`${here}page.zip`)).arrayBuffer(), "zip", { extractDir: "/lib/page" });
  python.globals.set("graphviz", dot => graphviz.renderString(dot, { format: "plain" }));
  python.runPython(`
import json, sys
sys.path.insert(0, "/lib/page")
import page
from autograd_nb.viz import layout
layout.run_graphviz = graphviz
layout._with_wheel = layout._with_program = graphviz
def answer(asked):
    asked = json.loads(asked)
    return json.dumps(page.answer(asked["f"], asked["inputs"], asked["scope"], asked["forward"]))
`);
  postMessage({ progress: 1 });
  return python.globals.get("answer");
})();
ready.catch(error => postMessage({ failed: String(error) }));

onmessage = async ({ data }) => {
  const answer = await ready;
  try {
    postMessage({ id: data.id, answer: JSON.parse(answer(JSON.stringify(data.asked))) });
  } catch (error) {
    postMessage({ id: data.id, answer: { error: `This did not work: ${String(error).trim().split("\n").at(-1)}`, names: [] } });
  }
};
