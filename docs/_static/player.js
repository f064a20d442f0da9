// Moves the players that docs/players.py writes as plain HTML: frames are templates, one of them is shown.
document.addEventListener("DOMContentLoaded", () => {
  for (const player of document.querySelectorAll(".player")) {
    const frames = player.querySelectorAll("template");
    const [frame, slider, play, count] = ["frame", "slider", "play", "count"].map(name => player.querySelector(`.player-${name}`));
    let timer = null;
    const show = step => {
      slider.value = Math.max(0, Math.min(frames.length - 1, step));
      frame.innerHTML = frames[slider.value].innerHTML;
      count.textContent = `${slider.value} / ${frames.length - 1}`;
    };
    const pause = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "▶";
      play.setAttribute("aria-label", "Play");
    };
    const start = () => {
      if (+slider.value === frames.length - 1) show(0);
      timer = setInterval(() => (+slider.value < frames.length - 1 ? show(+slider.value + 1) : pause()), +player.dataset.interval);
      play.textContent = "❚❚";
      play.setAttribute("aria-label", "Pause");
    };
    const by = steps => { pause(); show(+slider.value + steps); };
    play.addEventListener("click", () => (timer ? pause() : start()));
    slider.addEventListener("input", () => { pause(); show(+slider.value); });
    player.querySelector(".player-back").addEventListener("click", () => by(-1));
    player.querySelector(".player-on").addEventListener("click", () => by(1));
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) setTimeout(() => +slider.value || timer || start(), 1500);
  }
});
