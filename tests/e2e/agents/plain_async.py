"""The same agent with coroutines: three payments of a step are made at once, and the store is awaited."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import cloudckpt
from cloudckpt.crashtest import effect

BATCHES = ((12, 30, 7), (51, 18, 4), (9, 9, 60))


async def pay(step: int, number: int, amount: int) -> int:
    await asyncio.sleep(0.005)
    effect("paid", key=f"{step}/{number}", amount=amount)
    return amount + 1


async def main() -> None:
    async with cloudckpt.open(os.environ["CLOUDCKPT_URL"]) as store, store.run("batches") as run:
        state: dict[str, Any] = await run.aload() or {"step": 0, "paid": []}
        while state["step"] < len(BATCHES):
            step = state["step"]
            fees = await asyncio.gather(*(pay(step, n, amount) for n, amount in enumerate(BATCHES[step])))
            state["paid"].append(sum(fees))
            state["step"] += 1
            await run.asave(state)
        print(f"paid {state['paid']}")


if __name__ == "__main__":
    asyncio.run(main())
