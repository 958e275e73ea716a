// npm's client of Consul against two members. ADDR_A and ADDR_B name their handlers. It prints a line for
// each part that holds, and exits with status 1 at the first that does not.
"use strict";

const assert = require("node:assert");
const Consul = require("consul");

const connect = (addr) => {
  const [host, port] = addr.split(":");
  return new Consul({ host, port: Number(port) });
};
const a = connect(process.env.ADDR_A);
const b = connect(process.env.ADDR_B);

// watch resolves with the first data of a blocking query that are wanted; each index must be larger than
// the one before.
const watch = (method, options, wanted) =>
  new Promise((resolve, reject) => {
    const w = b.watch({ method, options });
    let index = 0n;
    w.on("change", (data, res) => {
      const next = BigInt(res.headers["x-consul-index"]);
      if (next <= index) {
        w.end();
        reject(new Error(`index ${next} after ${index}`));
      }
      index = next;
      if (wanted(data)) {
        w.end();
        resolve(data);
      }
    });
    w.on("error", (err) => {
      w.end();
      reject(err);
    });
  });

const refused = (promise, status) =>
  assert.rejects(promise, (err) => {
    assert.strictEqual(err.statusCode, status, err.message);
    return true;
  });

// The client returns undefined where the answer is false, so the parts negate it.
const parts = {
  async "keys and values"() {
    assert.strictEqual(await a.kv.get("absent"), undefined);
    for (const [key, value] of [["plain", "value"], ["folder/ä b+c%", "ünïcode"], ["empty", ""]]) {
      assert.strictEqual(await a.kv.set(key, value), true);
      const got = await b.kv.get(key);
      assert.strictEqual(got.Key, key);
      assert.strictEqual(got.Value || "", value);
      assert.ok(got.ModifyIndex > 0);
    }
    assert.ok(!(await a.kv.set({ key: "plain", value: "1", cas: "0" })));
    const { ModifyIndex } = await b.kv.get("plain");
    assert.strictEqual(await a.kv.set({ key: "plain", value: "2", cas: ModifyIndex, flags: 42 }), true);
    assert.deepStrictEqual(await b.kv.keys(), ["empty", "folder/ä b+c%", "plain"]);
    assert.deepStrictEqual(await b.kv.keys({ key: "", separator: "/" }), ["empty", "folder/", "plain"]);
    const list = await b.kv.get({ key: "", recurse: true });
    assert.deepStrictEqual(list.map((e) => e.Flags), [0, 0, 42]);
    assert.strictEqual((await b.kv.get({ key: "plain", raw: true })).toString(), "2");
    assert.ok(!(await a.kv.del({ key: "plain", cas: "1" })));
    assert.strictEqual(await a.kv.del("plain"), true);
    assert.strictEqual(await a.kv.del({ key: "", recurse: true }), true);
    assert.strictEqual(await b.kv.get({ key: "", recurse: true }), undefined);
  },

  async "sessions"() {
    const { Config } = await a.agent.self();
    const { ID } = await a.session.create({ name: "web", ttl: "30s", lockdelay: "1s", behavior: "delete" });
    const info = await b.session.info(ID);
    assert.strictEqual(info.Name, "web");
    assert.strictEqual(info.Node, Config.NodeName);
    assert.strictEqual(info.TTL, "30s");
    assert.strictEqual(info.LockDelay, 1e9);
    assert.strictEqual(info.Behavior, "delete");
    assert.ok((await b.session.list()).some((s) => s.ID === ID));
    assert.ok((await b.session.node(Config.NodeName)).some((s) => s.ID === ID));
    assert.strictEqual((await b.session.renew(ID))[0].ID, ID);
    await b.session.destroy(ID);
    assert.strictEqual(await a.session.info(ID), undefined);
    await refused(a.session.renew(ID), 404);
    await refused(a.session.create({ ttl: "1ms" }), 500);
  },

  async "a lock and its watch"() {
    const { ID } = await a.session.create({ ttl: "30s", lockdelay: "1ms" });
    const other = await b.session.create({ ttl: "30s" });
    assert.strictEqual(await a.kv.set({ key: "lock", value: "a", acquire: ID }), true);
    assert.ok(!(await b.kv.set({ key: "lock", value: "b", acquire: other.ID })));
    assert.ok(!(await b.kv.set({ key: "lock", value: "b", release: other.ID })));
    const held = await watch(b.kv.get.bind(b.kv), { key: "lock" }, (e) => e && e.Session === ID);
    assert.strictEqual(held.LockIndex, 1);
    const free = watch(b.kv.get.bind(b.kv), { key: "lock" }, (e) => e && !e.Session);
    await a.session.destroy(ID);
    await free;
    await b.session.destroy(other.ID);
  },

  async "transactions"() {
    const value = Buffer.from("v").toString("base64");
    const done = await a.transaction.create([
      { KV: { Verb: "set", Key: "txn/a", Value: value } },
      { KV: { Verb: "get", Key: "txn/a" } },
    ]);
    assert.strictEqual(done.Results.at(-1).KV.Value, value);
    await refused(a.transaction.create([{ KV: { Verb: "cas", Key: "txn/a", Value: value, Index: 1 } }]), 409);
  },

  async "checks and status"() {
    await a.agent.check.register({ name: "disk", ttl: "60s", status: "passing" });
    assert.strictEqual((await a.agent.check.list()).disk.Status, "passing");
    await a.agent.check.warn("disk");
    assert.strictEqual((await a.agent.check.list()).disk.Status, "warning");
    await a.agent.check.fail("disk");
    await refused(a.session.create({ checks: ["disk"] }), 500);
    await a.agent.check.pass("disk");
    const { ID } = await a.session.create({ checks: ["disk"] });
    await a.agent.check.deregister("disk");
    assert.strictEqual(await b.session.info(ID), undefined);
    const leader = await b.status.leader();
    assert.ok((await b.status.peers()).includes(leader));
    assert.strictEqual((await b.catalog.node.list()).length, 2);
  },

  async "what is not supported"() {
    assert.deepStrictEqual(await a.catalog.service.list(), {});
    await assert.rejects(a.agent.service.register({ name: "web" }), (err) => err.statusCode >= 400);
  },
};

(async () => {
  for (const [name, part] of Object.entries(parts)) {
    await part();
    console.log(`ok: ${name}`);
  }
  a.destroy();
  b.destroy();
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
