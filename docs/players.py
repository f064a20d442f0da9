"""Players as plain HTML, for the start page: it should be there at once, before any library for widgets has arrived.

A player of `autograd_nb.widgets` is a Play button and a slider linked to a `Stack` of HTML frames, with a drawing below that all frames share. The state that the executed notebook
keeps holds all of that as text. `_static/player.js` moves it.
"""

WIDGET = "application/vnd.jupyter.widget-view+json"


def static(view_id: str, state: dict) -> str | None:
    "The player with this id as HTML; None if it is something else."
    found = {}

    def walk(reference: str):
        model = state.get(reference.removeprefix("IPY_MODEL_"))
        if model is None:
            return
        kind, values = model["model_name"], model["state"]
        if kind == "StackModel":
            found["frames"] = [state[child.removeprefix("IPY_MODEL_")]["state"]["value"] for child in values["children"]]
            found["start"] = values.get("selected_index") or 0
            return
        if kind == "HTMLModel":
            found["drawing" if "frames" in found else "heading"] = values["value"]
        elif kind == "PlayModel":
            found["interval"] = values.get("interval", 1200)
        for child in values.get("children", ()):
            walk(child)

    walk(view_id)
    if "frames" not in found:
        return None
    frames, start = found["frames"], found["start"]
    return (f'<div class="player" data-interval="{found.get("interval", 1200)}">{found.get("heading", "")}<div class="player-controls">'
            '<button type="button" class="player-play" aria-label="Play">▶</button><button type="button" class="player-back" aria-label="One step back">‹</button>'
            f'<input type="range" class="player-slider" min="0" max="{len(frames) - 1}" value="{start}" aria-label="Step">'
            '<button type="button" class="player-on" aria-label="One step on">›</button>'
            f'<span class="player-count">{start} / {len(frames) - 1}</span></div>'
            f'<div class="player-frame">{frames[start]}</div>' + "".join(f"<template>{frame}</template>" for frame in frames)
            + f'<div class="player-drawing" tabindex="0" role="region" aria-label="Drawing">{found.get("drawing", "")}</div></div>')
