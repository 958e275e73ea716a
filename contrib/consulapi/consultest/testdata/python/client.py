# Debian's python3-consul against two members. ADDR_A and ADDR_B name their handlers. It prints a line for each
# part that holds, and exits with status 1 at the first that does not.
import os
import threading

import consul


def connect(name):
    host, port = os.environ[name].split(":")
    return consul.Consul(host=host, port=int(port))


a, b = connect("ADDR_A"), connect("ADDR_B")


def keys_and_values():
    assert a.kv.get("absent")[1] is None
    assert a.kv.put("folder/one", "1") and a.kv.put("folder/two", "2", flags=7)
    assert not a.kv.put("folder/one", "3", cas=0)
    index, one = b.kv.get("folder/one")
    assert one["Value"] == b"1" and one["ModifyIndex"] <= int(index)
    assert b.kv.put("folder/one", "3", cas=one["ModifyIndex"])
    assert [e["Flags"] for e in a.kv.get("folder/", recurse=True)[1]] == [0, 7]
    assert a.kv.get("folder/", keys=True, separator="/")[1] == ["folder/one", "folder/two"]
    for consistency in "consistent", "stale":
        assert a.kv.get("folder/two", consistency=consistency)[1]["Value"] == b"2"
    assert a.kv.delete("folder/", recurse=True) and b.kv.get("folder/", recurse=True)[1] is None


def locks():
    mine = a.session.create("mine", ttl=10, behavior="delete", lock_delay=0)
    other = b.session.create("other", ttl=10)
    assert a.kv.put("lock", "x", acquire=mine)
    assert not b.kv.put("lock", "y", acquire=other)
    assert a.session.renew(mine)["TTL"] == "10s"
    assert not b.kv.put("lock", "y", release=other)
    assert a.session.destroy(mine)
    assert b.kv.get("lock")[1] is None  # its behavior is to delete
    assert b.kv.put("lock", "y", acquire=other) and b.kv.put("lock", "y", release=other)
    try:
        a.session.renew(mine)
        raise AssertionError("a session that has ended is renewed")
    except consul.NotFound:
        pass


# Each blocking query is answered after what it waits for, or it would time out.
def blocking(read, change, seen):
    index, before = read(None)
    assert not seen(before)
    result = []

    def wait():
        at = index
        while True:
            at, data = read(at)
            if seen(data):
                result.append(data)
                return

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    change()
    waiter.join(60)
    assert result, "the blocking query does not return"


def watches():
    blocking(lambda i: b.kv.get("watched", index=i), lambda: a.kv.put("watched", "v"), lambda e: e is not None)
    ids = []
    blocking(lambda i: b.session.list(index=i), lambda: ids.append(a.session.create("listed")), lambda l: "listed" in [s["Name"] for s in l])
    blocking(lambda i: b.session.info(ids[0], index=i), lambda: a.session.destroy(ids[0]), lambda s: not s)
    node = a.agent.self()["Config"]["NodeName"]
    blocking(lambda i: b.health.node(node, index=i), lambda: a.agent.check.register("check", check=consul.Check.ttl("60s")),
             lambda checks: "check" in [c["CheckID"] for c in checks])


def nodes_and_checks():
    nodes = [n["Node"] for n in a.catalog.nodes()[1]]
    assert len(nodes) == 2 and a.agent.self()["Config"]["NodeName"] in nodes
    assert a.status.leader() in a.status.peers()
    assert not a.agent.check.ttl_pass("check")  # this version sends a GET, which Consul has refused since 1.0
    assert a.agent.checks()["check"]["Status"] == "critical"
    assert a.agent.services() == {} and a.catalog.services()[1] == {} and len(a.agent.members()) == 2
    assert not a.agent.service.register("web")


for part in keys_and_values, locks, watches, nodes_and_checks:
    part()
    print("ok:", part.__name__.replace("_", " "))
