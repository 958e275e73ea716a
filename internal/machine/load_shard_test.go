package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// shardDisk is a sound state with sets of shards: worker 2 of the session has two shards, one of which is to move, and takes another over; those of
// worker 4 wait for one of its name, worker 5 has expired, and worker 7 leaves; a shard is delayed. The other set changes its count.
func shardDisk() disk {
	d := sharedDisk()
	d["m"] = machineAt(wire.LevelShards)
	d["aset"] = marshalled(&wire.ShardSetState{Count: 9, Generation: 3, Joins: 7})
	d["bset\x00"+be(2)] = soundWorker(&wire.ShardWorkerState{Session: []byte(soundSession), Handle: 8, Joined: 29, Delay: 9 * second})
	d["bset\x00"+be(4)] = soundWorker(&wire.ShardWorkerState{Joined: 21, Delay: 7 * second, Until: 9 * second})
	d["bset\x00"+be(5)] = soundWorker(&wire.ShardWorkerState{Joined: 20, Expired: true})
	d["bset\x00"+be(7)] = soundWorker(&wire.ShardWorkerState{Session: []byte(soundSession), Handle: 9, Joined: 30, Leaving: true})
	d["fset\x00"+be(0)] = marshalled(&wire.ShardState{Worker: 2, Fence: 31})
	d["fset\x00"+be(1)] = marshalled(&wire.ShardState{Worker: 2, Fence: 32, Moving: true})
	d["fset\x00"+be(2)] = marshalled(&wire.ShardState{Worker: 2, Fence: 28})
	d["fset\x00"+be(3)] = marshalled(&wire.ShardState{Worker: 4, Fence: 27})
	d["fset\x00"+be(4)] = marshalled(&wire.ShardState{Worker: 5, Fence: 26})
	d["fset\x00"+be(5)] = marshalled(&wire.ShardState{Worker: 7, Fence: 33})
	d["fset\x00"+be(6)] = marshalled(&wire.ShardState{Delay: 8 * second})
	d["aother"] = marshalled(&wire.ShardSetState{Count: 1, Next: 4, Generation: 3, Joins: 1})
	d["fother\x00"+be(0)] = marshalled(&wire.ShardState{Delay: 8 * second})
	return d
}

func soundWorker(st *wire.ShardWorkerState) []byte {
	if st.Member == 0 {
		st.Member = 1
	}
	if st.Capacity == 0 {
		st.Capacity = 1
	}
	return marshalled(st)
}

// liveWorker encodes another worker of the session.
func liveWorker(st *wire.ShardWorkerState) []byte {
	st.Session = []byte(soundSession)
	if st.Joined == 0 {
		st.Joined = 34
	}
	return soundWorker(st)
}

var violationsOfShards = []stateRow{
	{"shards below their level", "m", machineAt(wire.LevelShards - 1)},
	{"a set without a name", "a", marshalled(&wire.ShardSetState{Count: 1, Generation: 1, Joins: 1})},
	{"a set with NUL in its name", "ax\x00", marshalled(&wire.ShardSetState{Count: 1, Generation: 1, Joins: 1})},
	{"a set without shards", "aset", marshalled(&wire.ShardSetState{Generation: 3, Joins: 7})},
	{"a set with too many shards", "aset", marshalled(&wire.ShardSetState{Count: MaxShards + 1, Generation: 3, Joins: 7})},
	{"a set that gets too many shards", "aother", marshalled(&wire.ShardSetState{Count: 1, Next: MaxShards + 1, Generation: 3, Joins: 1})},
	{"a set that changes to what it is", "aother", marshalled(&wire.ShardSetState{Count: 1, Next: 1, Generation: 3, Joins: 1})},
	{"a set without a generation", "aset", marshalled(&wire.ShardSetState{Count: 9, Joins: 7})},
	{"a set that none has joined", "aset", marshalled(&wire.ShardSetState{Count: 9, Generation: 3})},
	{"a set without workers", "ax", marshalled(&wire.ShardSetState{Count: 1, Generation: 1, Joins: 1})},
	{"a set that has changed its count", "fother\x00" + be(0), nil},
	{"a set that no worker can join", "aset", marshalled(&wire.ShardSetState{Count: 9, Generation: 3, Joins: 1<<64 - 1})},
	{"a shard that a leaving worker was not granted", "fset\x00" + be(5), marshalled(&wire.ShardState{Worker: 7, Fence: 25})},
	{"fewer shards than are assigned", "aset", marshalled(&wire.ShardSetState{Count: 6, Generation: 3, Joins: 7})},
	{"fewer joins than workers", "aset", marshalled(&wire.ShardSetState{Count: 9, Generation: 3, Joins: 6})},
	{"a worker of no set", "bx\x00" + be(1), liveWorker(&wire.ShardWorkerState{})},
	{"a worker without a number", "bset", liveWorker(&wire.ShardWorkerState{})},
	{"a worker of number 0", "bset\x00" + be(0), liveWorker(&wire.ShardWorkerState{})},
	{"a worker of no session", "bset\x00" + be(3), soundWorker(&wire.ShardWorkerState{Session: []byte("sixteen bytes ab"), Joined: 34})},
	{"a worker of half a session", "bset\x00" + be(3), soundWorker(&wire.ShardWorkerState{Session: []byte("half"), Joined: 34})},
	{"a handle that joined twice", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Handle: 8})},
	{"a worker that never joined", "bset\x00" + be(3), soundWorker(&wire.ShardWorkerState{Session: []byte(soundSession)})},
	{"a worker that joined with a fence never granted", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Joined: 41})},
	{"two workers that joined with one fence", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Joined: 29})},
	{"a worker without capacity", "bset\x00" + be(3), marshalled(&wire.ShardWorkerState{Session: []byte(soundSession), Joined: 34})},
	{"a worker with too much capacity", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Capacity: MaxCapacity + 1})},
	{"a worker that settles for too long", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Settle: MaxSettle + 1})},
	{"a worker with NUL in its name", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Name: "x\x00"})},
	{"a live worker that is waited for", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Until: second})},
	{"a live worker that has expired", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Expired: true})},
	{"an ended worker that never expires", "bset\x00" + be(4), soundWorker(&wire.ShardWorkerState{Joined: 21})},
	{"an ended worker that expires before its delay", "bset\x00" + be(4), soundWorker(&wire.ShardWorkerState{Joined: 21, Delay: 9 * second, Until: 8 * second})},
	{"an expired worker that is waited for", "bset\x00" + be(5), soundWorker(&wire.ShardWorkerState{Joined: 20, Expired: true, Until: 9 * second})},
	{"a leaving worker without shards", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Leaving: true})},
	{"an expired worker without shards", "bset\x00" + be(3), soundWorker(&wire.ShardWorkerState{Joined: 34, Expired: true})},
	{"a shard of no set", "fx\x00" + be(0), marshalled(&wire.ShardState{Worker: 1, Fence: 35})},
	{"a shard that is none", "fset\x00" + be(9), marshalled(&wire.ShardState{Worker: 2, Fence: 35})},
	{"a shard without a number", "fset\x00", marshalled(&wire.ShardState{Worker: 2, Fence: 35})},
	{"a shard of no worker", "fset\x00" + be(7), marshalled(&wire.ShardState{Worker: 3, Fence: 35})},
	{"a shard without a reason", "fset\x00" + be(7), marshalled(&wire.ShardState{})},
	{"a shard that is delayed and assigned", "fset\x00" + be(7), marshalled(&wire.ShardState{Worker: 2, Fence: 35, Delay: 9 * second})},
	{"a shard without a fence", "fset\x00" + be(7), marshalled(&wire.ShardState{Worker: 2})},
	{"a shard with a fence never granted", "fset\x00" + be(7), marshalled(&wire.ShardState{Worker: 2, Fence: 41})},
	{"two shards with one fence", "fset\x00" + be(7), marshalled(&wire.ShardState{Worker: 2, Fence: 31})},
	{"a delayed shard that is to move", "fset\x00" + be(7), marshalled(&wire.ShardState{Delay: 9 * second, Moving: true})},
	{"a shard that is to move from an ended worker", "fset\x00" + be(3), marshalled(&wire.ShardState{Worker: 4, Fence: 27, Moving: true})},
}

func TestLoad_RefusesEachViolationOfShards(t *testing.T) {
	for _, row := range violationsOfShards {
		t.Run(row.name, func(t *testing.T) {
			d := shardDisk()
			if d[row.key] = row.value; row.value == nil {
				delete(d, row.key)
			}
			if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
				t.Errorf("Load: %v", err)
			}
		})
	}
}

func TestLoad_AcceptsShards(t *testing.T) {
	for _, row := range []stateRow{
		{"as it is", "m", machineAt(wire.LevelShards)},
		{"another worker", "bset\x00" + be(3), liveWorker(&wire.ShardWorkerState{Name: "ann", Settle: MaxSettle, Capacity: MaxCapacity, Client: true})},
		{"the last worker, with shards", "aother", marshalled(&wire.ShardSetState{Count: MaxShards, Next: 1, Generation: 3, Joins: 9})},
		{"a time that has passed", "bset\x00" + be(4), soundWorker(&wire.ShardWorkerState{Joined: 21, Until: second})},
		{"a shard more", "fset\x00" + be(8), marshalled(&wire.ShardState{Worker: 7, Fence: 36, Moving: true})},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := shardDisk()
			d[row.key] = row.value
			checkLoad(t, d, "")
		})
	}
}

// What is damaged at its end is refused.
func TestLoad_DamagedShards(t *testing.T) {
	for key := range shardDisk() {
		if !strings.ContainsRune("abf", rune(key[0])) {
			continue
		}
		d := shardDisk()
		d[key] = append(d[key], 0xff)
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q damaged: %v", key, err)
		}
	}
}
