package machine

import "testing"

// The second half of Consul's page on sessions: what they do with keys.
func TestKey_ConsulRules(t *testing.T) { playPromises(t, consulKeyRules) }

var consulKeyRules = []promise{
	{"a session must be created prior to use", `A write acquire k v session=later
----
A.5: SESSION_EXPIRED`},

	{"acquire succeeds only when there is no holder", `A write acquire k v session=s
B write acquire k w session=t
----
A.5: OK create=2 modify=2 lock=1 session=s
B.3: LOCKED by s of member 1
key k: "v" create=2 modify=2 lock=1 session=s`},

	{"an acquire is a key update, an increment of the LockIndex and the session", `A write put k v flags=1
A write acquire k w flags=2 session=s
----
A.5: OK create=2 modify=2 flags=1
A.6: OK create=2 modify=3 flags=2 lock=1 session=s
key k: "v" create=2 modify=2 flags=1
key k: "w" create=2 modify=3 flags=2 lock=1 session=s`},

	{"acquired again by its session, the LockIndex stays and the contents are updated", `A write acquire k v session=s
A write acquire k w session=s
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK create=2 modify=3 lock=1 session=s
key k: "v" create=2 modify=2 lock=1 session=s
key k: "w" create=2 modify=3 lock=1 session=s`},

	{"a release needs the session that holds", `A write acquire k v session=s
B write release k w session=t
B write release none w session=t
----
A.5: OK create=2 modify=2 lock=1 session=s
B.3: NOT_HELD
B.4: NOT_HELD
key k: "v" create=2 modify=2 lock=1 session=s`},

	{"a release need not come from the creator of the session", `A write acquire k v session=s
B write release k w session=s
----
A.5: OK create=2 modify=2 lock=1 session=s
B.3: OK create=2 modify=3 lock=1
key k: "v" create=2 modify=2 lock=1 session=s
key k: "w" create=2 modify=3 lock=1`},

	{"released, the LockIndex stays, the session is cleared and the ModifyIndex moves", `A write acquire k v session=s
A write release k v session=s
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK create=2 modify=3 lock=1
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1`},

	{"a released key has no lock-delay", `A write acquire k v session=s
A write release k v session=s
B write acquire k v session=t
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK create=2 modify=3 lock=1
B.3: OK create=2 modify=4 lock=2 session=t
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1
key k: "v" create=2 modify=4 lock=2 session=t`},

	{"the sequencer of a session that acquires again is stale", `A write acquire k v session=s
A write release k v session=s
A write acquire k v session=s
A write expect-holder k session=s index=1
A write expect-holder k session=s index=2
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK create=2 modify=3 lock=1
A.7: OK create=2 modify=4 lock=2 session=s
A.8: STALE_SEQUENCER
A.9: OK create=2 modify=4 lock=2 session=s
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1
key k: "v" create=2 modify=4 lock=2 session=s`},

	{"after an invalidation the session of the LockIndex is blank", `A write acquire k v session=s
B close s
B write expect-holder k session=s index=1
----
A.5: OK create=2 modify=2 lock=1 session=s
ended s of A
B.3: OK
B.4: STALE_SEQUENCER
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1`},

	{"locks are advisory: any caller writes and deletes", `A write acquire k v session=s
B write put k w
B write swap k x index=3
B write delete k
----
A.5: OK create=2 modify=2 lock=1 session=s
B.3: OK create=2 modify=3 lock=1 session=s
B.4: OK create=2 modify=4 lock=1 session=s
B.5: OK -
key k: "v" create=2 modify=2 lock=1 session=s
key k: "w" create=2 modify=3 lock=1 session=s
key k: "x" create=2 modify=4 lock=1 session=s
at 5 deleted key k: "x" create=2 modify=4 lock=1 session=s`},
}

// The rules for keys that go beyond those of Consul.
func TestKey_DesignRules(t *testing.T) { playPromises(t, designKeyRules) }

var designKeyRules = []promise{
	{"keys have 1 to 512 bytes, values up to 512 KiB", `A write put '' v
A write put long:513 v
A write put k long:524289
A write put k v
----
A.5: INVALID (the name is empty: want 1 to 512 bytes)
A.6: TOO_LARGE (the name is too long: want 1 to 512 bytes)
A.7: TOO_LARGE (the value is too long: at most 512 KiB)
A.8: OK create=2 modify=2
key k: "v" create=2 modify=2`},

	{"compare-and-swap is on the ModifyIndex, 0 is that there must be no key", `A write swap k v index=0
A write swap k w index=0
A write swap k w index=2
A write swap k x index=2
----
A.5: OK create=2 modify=2
A.6: COMPARE_FAILED
A.7: OK create=2 modify=3
A.8: COMPARE_FAILED
key k: "v" create=2 modify=2
key k: "w" create=2 modify=3`},

	{"compare-and-delete is, too", `A write delete-if k index=0
A write put k v
A write delete-if k index=1
A write delete-if k index=2
----
A.5: OK -
A.6: OK create=2 modify=2
A.7: COMPARE_FAILED
A.8: OK -
key k: "v" create=2 modify=2
at 3 deleted key k: "v" create=2 modify=2`},

	{"a put keeps the lock and its LockIndex", `A write acquire k v session=s
A write release k v session=s
A write put k w
A write acquire k w session=s
A write put k x
----
A.5: OK create=2 modify=2 lock=1 session=s
A.6: OK create=2 modify=3 lock=1
A.7: OK create=2 modify=4 lock=1
A.8: OK create=2 modify=5 lock=2 session=s
A.9: OK create=2 modify=6 lock=2 session=s
key k: "v" create=2 modify=2 lock=1 session=s
key k: "v" create=2 modify=3 lock=1
key k: "w" create=2 modify=4 lock=1
key k: "w" create=2 modify=5 lock=2 session=s
key k: "x" create=2 modify=6 lock=2 session=s`},

	{"a put that changes nothing moves no index", `A write put k v
A write put k v
----
A.5: OK create=2 modify=2
A.6: OK create=2 modify=2
key k: "v" create=2 modify=2

? changes
----
2`},

	{"put with a fence refuses smaller ones", `A write put-fenced k v fence=2
A write put-fenced k w fence=1
A write put-fenced k w fence=2
A write put k x
A write put-fenced k y fence=1
----
A.5: OK create=2 modify=2 fence=2
A.6: STALE_FENCE fence=2 holds=0
A.7: OK create=2 modify=3 fence=2
A.8: OK create=2 modify=4 fence=2
A.9: STALE_FENCE fence=2 holds=0
key k: "v" create=2 modify=2 fence=2
key k: "w" create=2 modify=3 fence=2
key k: "x" create=2 modify=4 fence=2`},

	{"a transaction is all or nothing", `A write put a 1 ; put b 1 ; swap b 2 index=9
----
A.5: COMPARE_FAILED op=2

? entries
? changes
----
0`},

	{"no change is merged with another", `A write put k 1 ; put k 2 ; delete k ; put k 3
----
A.5: OK create=2 modify=2; create=2 modify=3; -; create=5 modify=5
key k: "1" create=2 modify=2
key k: "2" create=2 modify=3
at 4 deleted key k: "2" create=2 modify=3
key k: "3" create=5 modify=5`},
}
