package machine

import "testing"

// promise is a sentence of a document, and a script that demonstrates it.
type promise struct{ sentence, script string }

// consulWorld is what each script below finds: two members, a check, and three
// sessions: s with the default checks and lock-delay, d that deletes its keys,
// and t of the other member. The next calls are A.5 and B.3, the next index 2.
const consulWorld = `A register member=1 boot=1 ttl=1h
B register member=2 boot=1 ttl=1h
A check disk register
A open s ttl=1h delay=15s checks=gossip,disk
A open d ttl=1h delete
B open t ttl=1h
----
A.1: OK
B.1: OK
A.2: OK check=disk
A.3: OK lock-delay=15s check=gossip check=disk
A.4: OK
B.2: OK

`

func playPromises(t *testing.T, promises []promise) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.sentence, func(t *testing.T) { play(t, consulWorld+p.script) })
	}
}

// The first half of Consul's page on sessions: how they live and end.
func TestSession_ConsulRules(t *testing.T) { playPromises(t, consulSessionRules) }

var consulSessionRules = []promise{
	{"a session has a node, checks, a behavior, a TTL and a lock-delay", `? sessions
----
d "" of A, member 1, ttl=1h0m0s delay=0s left=1h0m0s created=1 DELETE
s "" of A, member 1, ttl=1h0m0s delay=15s left=1h0m0s created=1 checks=gossip,disk
t "" of B, member 2, ttl=1h0m0s delay=0s left=1h0m0s created=1`},

	{"it is invalidated when its node is deregistered", `A open n ttl=none
A remove-member voters=2
----
A.5: OK
ended d of A
ended s of A
ended n of A
A.6: OK`},

	{"it is closed by a graceful shutdown of its process, unless it has no TTL", `A open n ttl=none
A deregister
----
A.5: OK
ended d of A
ended s of A
unbound n of A
A.6: OK

? sessions
----
t "" of B, member 2, ttl=1h0m0s delay=0s left=1h0m0s created=1
n "" of none, member 1, ttl=0s delay=0s left=0s created=2`},

	{"it is invalidated when one of its checks is deregistered", `A drop disk
----
ended s of A
A.5: OK`},

	{"it is invalidated when one of its checks becomes critical", `A check disk warning
A check disk critical
----
A.5: OK check=disk
ended s of A
A.6: OK check=disk`},

	{"it is invalidated when it is destroyed", `B close s
----
ended s of A
B.3: OK`},

	{"it is invalidated when its TTL expires", `A open q ttl=2s
----
A.5: OK

at 2s
----
ended q of A`},

	{"invalidated, it is destroyed and of no more use", `B close s
A write acquire k v session=s
A lock x s/1
A close s
A attach s
----
ended s of A
B.3: OK
A.5: SESSION_EXPIRED
A.6: SESSION_EXPIRED
A.7: SESSION_EXPIRED
A.8: SESSION_EXPIRED`},

	{"the behavior release is the default: the lock is released and the ModifyIndex moves", `A write acquire k v session=s
B close s
----
A.5: OK create=2 modify=2 lock=1 session=s
ended s of A
B.3: OK
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1`},

	{"with the behavior delete the key is deleted: an ephemeral entry", `A write acquire k v session=d
B close d
----
A.5: OK create=2 modify=2 lock=1 session=d
ended d of A
B.3: OK
key k: "v" create=2 modify=2 lock=1 session=d
at 3 deleted key k: "v" create=2 modify=2 lock=1 session=d`},

	{"the gossip check releases the locks of a node that failed: liveness", `at 5s
A lock x s/1
B lock x t/1 wait
B gossip member=1 boot=1 dead
----
A.5: OK fence=1 holds=1
B.3: QUEUED in place 1 by s/1 of member 1, fence=1, more to come
ended s of A
B.4: OK

at 20s
----
B.3: OK fence=2 holds=1`},

	{"gossip can be wrong: the lock is released though its owner lives and says so", `at 5s
A lock x s/1
B gossip member=1 boot=1 dead
A unlock x s/1 fence=1
----
A.5: OK fence=1 holds=1
ended s of A
B.3: OK
A.6: SESSION_EXPIRED`},

	{"without checks and TTL nothing but an operator releases the lock: safety", `A open n ttl=none
A lock x n/1
----
A.5: OK
A.6: OK fence=1 holds=1

at 5s
B gossip member=1 boot=1 dead
A check disk critical
A2 register member=1 boot=2
----
ended s of A
B.3: OK
A.7: OK check=disk
ended d of A
unbound n of A
A2.1: OK

at 59m
B renew
B lock x t/1
B close n
B lock x t/1
----
B.4: OK
B.5: LOCKED by n/1 of member 1, fence=1
ended n of none
B.6: OK
B.7: OK fence=2 holds=1`},

	{"the TTL is a lower bound", `A open q ttl=2s
----
A.5: OK

at 1999999999ns
----`},

	{"the TTL is renewed by creation, by renewal and on leader failover", `at 5s
A open q ttl=2s
----
A.5: OK

at 6s
A renew
----
A.6: OK

at 7999ms
----

term
----

at 9998ms
----

at 9999ms
----
ended q of A`},

	{"the lock-delay is between 0 and 60 seconds", `A open a delay=0s
A open b delay=60s
A open c delay=60001ms
A open e delay=-1s
----
A.5: OK
A.6: OK lock-delay=1m0s
A.7: INVALID (the lock-delay is out of range: want 0 to 60 s)
A.8: INVALID (the lock-delay is out of range: want 0 to 60 s)`},

	{"for the lock-delay nothing that was held is acquired", `A write acquire k v session=s
A lock x s/1
A acquire p s limit=1 permits=1
B close s
B write acquire k w session=t
B lock x t/1
B acquire p t limit=1 permits=1
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK fence=1 holds=1
A.7: OK fence=2 holds=1
ended s of A
B.3: OK
B.4: LOCK_DELAY delay=15s
B.5: LOCK_DELAY delay=15s
B.6: LOCK_DELAY delay=15s
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1

at 15s
B write acquire k w session=t
B lock x t/1
B acquire p t limit=1 permits=1
----
B.7: OK create=2 modify=4 lock=2 session=t
B.8: OK fence=3 holds=1
B.9: OK fence=4 holds=1
key k: "w" create=2 modify=4 lock=2 session=t`},

	{"a zero lock-delay disables it", `A write acquire k v session=d
B close d
B write acquire k w session=t
----
A.5: OK create=2 modify=2 lock=1 session=d
ended d of A
B.3: OK
B.4: OK create=4 modify=4 lock=2 session=t
key k: "v" create=2 modify=2 lock=1 session=d
at 3 deleted key k: "v" create=2 modify=2 lock=1 session=d
key k: "w" create=4 modify=4 lock=2 session=t`},
}
