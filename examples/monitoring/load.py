"""Sends requests to the text-infilling application at random times.

python load.py http://127.0.0.1:5005
"""

import asyncio
import random
import sys

import httpx

CLIENTS = 16
RATE = 50  # requests a second, of all clients
SENTENCES = ["twinkle twinkle [MASK] star.", "Happy birthday to [MASK]."]


async def client(http: httpx.AsyncClient) -> None:
    while True:
        await asyncio.sleep(random.expovariate(RATE / CLIENTS))
        (await http.post("/stream", data={"s": random.choice(SENTENCES)})).raise_for_status()


async def main(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        await asyncio.gather(*(client(http) for _ in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
