// What widgets (ipywidgets' html-manager) need on a page of this theme. Loaded before every other script.

// The theme's Font Awesome replaces every <i class="fa-…"> by an <svg>, also inside widgets. The Play button then loses
// the element it wants to change, fails on every step, and takes each jslink with it. So: replace the theme's own icons
// once, before any widget exists, and never again.
window.FontAwesomeConfig = { autoReplaceSvg: false, observeMutations: false };

// html-manager looks for its icon font relative to the folder that require.js loads modules from.
window.require = { baseUrl: new URL(".", document.currentScript.src).pathname };

document.addEventListener("DOMContentLoaded", () => {
  if (window.FontAwesome) window.FontAwesome.dom.i2svg();
  // Labels ask for formulas to be typeset in the way of MathJax 2; hand that on to the version on this page.
  const mathjax = window.MathJax;
  if (mathjax && !mathjax.Hub) {
    mathjax.Hub = { Queue: ([, , element]) => mathjax.startup?.promise.then(() => mathjax.typesetPromise([element])) };
  }
});
