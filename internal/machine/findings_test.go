package machine

import "testing"

// Known bugs of other lock libraries, as far as the machine decides them. The initial
// state is that of the rules of Consul.
func TestKnownBugsOfOthers(t *testing.T) { playPromises(t, knownBugs) }

var knownBugs = []promise{
	{"etcd#11456, #19597: no grant to a waiter whose session is dead", `A open q ttl=2s
A open r ttl=2s
A lock x q/1
A lock x r/1 wait
B lock x t/1 wait
----
A.5: OK
A.6: OK
A.7: OK fence=1 holds=1
A.8: QUEUED in place 1 by q/1 of member 1, fence=1, more to come
B.3: QUEUED in place 2 by q/1 of member 1, fence=1, more to come

at 2s
----
ended q of A
ended r of A
A.8: SESSION_EXPIRED
B.3: OK fence=2 holds=1`},

	{"etcd#22082: a late unlock does not take a newer hold", `A lock x d/1
A unlock x d/1 fence=1
A lock x d/1
A unlock x d/1 fence=1
----
A.5: OK fence=1 holds=1
A.6: OK fence=1 holds=0
A.7: OK fence=2 holds=1
A.8: OWNERSHIP_LOST

? lock x
----
x: held by d/1 of member 1, fence=2 holds=1, 0 waiting`},

	{"etcd#11360, #10756: two handles of one session exclude each other", `A lock x d/1
A lock x d/2
A lock x d/2 reentrant
----
A.5: OK fence=1 holds=1
A.6: LOCKED by d/1 of member 1, fence=1
A.7: LOCKED by d/1 of member 1, fence=1`},

	{"etcd#21128, #9921: a campaign that was given up leaves nothing behind", `A lock e d/1 election value=a
B lock e t/1 election value=b wait
B withdraw B.3
A unlock e d/1 fence=1 election
B withdraw B.3
----
A.5: OK fence=1 holds=1
B.3: QUEUED in place 1 by d/1 of member 1, fence=1, more to come
B.3: WITHDRAWN
B.4: OK
A.6: OK fence=1 holds=0
B.5: NOT_HELD
leader of e: d of member 1, fence=1 "a"
leader of e: none`},

	{"etcd#15247, #12528, and Hazelcast's grace: a new leader gives a full TTL", `A open q ttl=10s
----
A.5: OK

at 9999ms
----

term
----

at 19s
----`},

	{"etcd#18163, consul#2342: each change is told once, and none that was undone", `A write put k 1
A write put k 2 ; expect k index=0
A lock e d/1 election value=a
A proclaim e d/1 fence=1 value=a
A unlock e d/1 fence=1 election
----
A.5: OK create=2 modify=2
A.6: COMPARE_FAILED op=1
A.7: OK fence=1 holds=1
A.8: OK fence=1 holds=1
A.9: OK fence=1 holds=0
key k: "1" create=2 modify=2
leader of e: d of member 1, fence=1 "a"
leader of e: none`},

	{"consul#1006, #9469, #7523: one release, one grant, in the same entry", `A lock x d/1
B lock x t/1 wait
B lock x t/2 wait
A unlock x d/1 fence=1
----
A.5: OK fence=1 holds=1
B.3: QUEUED in place 1 by d/1 of member 1, fence=1, more to come
B.4: QUEUED in place 2 by d/1 of member 1, fence=1, more to come
B.3: OK fence=2 holds=1
A.6: OK fence=1 holds=0`},

	{"Consul: the lock-delay does not begin again, and is there for permits", `A acquire p s limit=1 permits=1
B close s
----
A.5: OK fence=1 holds=1
ended s of A
B.3: OK

at 14s
----

term
----

B acquire p t limit=1 permits=1
----
B.4: LOCK_DELAY delay=1s

at 15s
B acquire p t limit=1 permits=1
----
B.5: OK fence=2 holds=1`},

	{"consul#4902, #4935: a handle that lost its hold locks again", `A lock x s/1
B close s
A open s2 ttl=1h
A lock x s2/1 reentrant fence=1
----
A.5: OK fence=1 holds=1
ended s of A
B.3: OK
A.6: OK
A.7: OWNERSHIP_LOST

at 15s
A lock x s2/1 reentrant
----
A.8: OK fence=2 holds=1`},

	{"Hazelcast: an interrupted caller is not granted the lock later", `A lock x d/1
B lock x t/1 wait
A unlock x d/1 fence=1
B withdraw B.3
A lock x d/1
----
A.5: OK fence=1 holds=1
B.3: QUEUED in place 1 by d/1 of member 1, fence=1, more to come
B.3: OK fence=2 holds=1
A.6: OK fence=1 holds=0
B.4: OK fence=2 holds=0
A.7: OK fence=3 holds=1`},

	{"Hazelcast #17709, #26526: what is not in use is not kept", `A lock x d/1
A lock e d/1 election
A acquire p d limit=2 permits=1
A write acquire k v session=d
A unlock x d/1 fence=1
A unlock e d/1 fence=2 election
A release p d fence=3
A close d
----
A.5: OK fence=1 holds=1
A.6: OK fence=2 holds=1
A.7: OK fence=3 holds=1
A.8: OK create=2 modify=2 lock=1 session=d
A.9: OK fence=1 holds=0
A.10: OK fence=2 holds=0
A.11: OK fence=3 holds=0
ended d of A
A.12: OK
key k: "v" create=2 modify=2 lock=1 session=d
at 3 deleted key k: "v" create=2 modify=2 lock=1 session=d
leader of e: d of member 1, fence=2 ""
leader of e: none

A floor 12
B floor 2
? keys
----
M 1
M 2
c 1 disk
i A
i B
m
s s
s t`},

	{"Hazelcast: a refused try means that the lock is held", `A open q ttl=2s
A lock x q/1
----
A.5: OK
A.6: OK fence=1 holds=1

at 2s
B lock x t/1
----
ended q of A
B.3: OK fence=2 holds=1`},

	{"CURATOR-620, -653, -696: a process that comes back leads under a new fence only", `A open n ttl=none
A lock e n/1 election value=a
A2 register member=1 boot=2
A2 attach n
A2 proclaim e n/1 fence=1 value=b
A proclaim e n/1 fence=1 value=b
A2 lock e n/1 election value=b
----
A.5: OK
A.6: OK fence=1 holds=1
ended d of A
ended s of A
unbound n of A
A2.1: OK
A2.2: OK
A2.3: NOT_HELD
A.7: UNKNOWN_INCARNATION (the incarnation is not registered; register a new one)
A2.4: OK fence=2 holds=1
leader of e: n of member 1, fence=1 "a"
leader of e: n of member 1, fence=1 "a"
leader of e: n of member 1, fence=2 "b"`},

	{"jetcd, Jepsen 2024: a call that is sent again is not carried out again", `A write put k 1
A write put k 2
A.5 write put k 1
A.7 acquire p d limit=2 permits=1
A.7 acquire p d limit=2 permits=1
A.8 lock e d/1 election
A.8 lock e d/1 election
----
A.5: OK create=2 modify=2
A.6: OK create=2 modify=3
A.5: OK create=2 modify=2
A.7: OK fence=1 holds=1
A.7: OK fence=1 holds=1
A.8: OK fence=2 holds=1
A.8: OK fence=2 holds=1
key k: "1" create=2 modify=2
key k: "2" create=2 modify=3
leader of e: d of member 1, fence=2 ""`},
}
