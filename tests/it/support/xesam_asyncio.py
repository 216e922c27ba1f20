"""Xesam crawler over an asyncio library: dbus_fast or dbus_next. It prints events as xesam_crawler.py does.

Usage: xesam_asyncio.py LIBRARY ADDRESS NAME MTIME
"""

import asyncio
import importlib
import json
import sys

library, address, name, mtime = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
aio = importlib.import_module(f"{library}.aio")
service = importlib.import_module(f"{library}.service")
TARGET = "/org/freedesktop/xesam/pmh/Target"


def show(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)


class Crawler(service.ServiceInterface):
    def __init__(self):
        super().__init__("org.freedesktop.xesam.pmh.Crawler")

    @service.method()
    def UpdateRecords(self, payloads: "a(ssssta(ss))"):
        show("UpdateRecords", records=payloads, signature="a(ssssta(ss))", waiting=0)

    @service.method()
    def Invalidate(self, debug_message: "s"):
        show("Invalidate", text=debug_message)
        self.Invalidated(debug_message)

    @service.method()
    def CleanUp(self):
        show("CleanUp")

    @service.signal()
    def Invalidated(self, debug_message) -> "s":
        return debug_message


async def main():
    bus = await aio.MessageBus(bus_address=address).connect()
    show("connected", owner=bus.unique_name)
    bus.export("/crawler", Crawler())
    proxy = bus.get_proxy_object(name, TARGET, await bus.introspect(name, TARGET))
    target = proxy.get_interface("org.freedesktop.xesam.pmh.Target")
    # Installed, CleanUp and the first records may be seen in another order than on the wire.
    show("installed", incremental=await target.call_list_records(mtime, [], [], [], 10, "/crawler"))
    await bus.wait_for_disconnect()


asyncio.run(main())
