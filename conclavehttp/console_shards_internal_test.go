package conclavehttp

import (
	"testing"

	"github.com/conclave-go/conclave"
)

func TestRanges(t *testing.T) {
	far := []int{}
	for i := range 40 {
		far = append(far, 2*i)
	}
	for _, c := range []struct {
		numbers []int
		want    string
	}{
		{nil, ""}, {[]int{7}, "7"}, {[]int{0, 1, 2, 3, 7, 9, 10}, "0–3, 7, 9–10"},
		{far, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, …"},
	} {
		if got := ranges(c.numbers); got != c.want {
			t.Errorf("%v: %q, want %q", c.numbers, got, c.want)
		}
	}
}

// What is to move is part of what its owner has.
func TestMapOf_Moving(t *testing.T) {
	anna, ben := conclave.SessionID{1}, conclave.SessionID{2}
	info := conclave.ShardsInfo{Name: "orders", Count: 5, Workers: []conclave.ShardWorkerInfo{{Number: 7, Session: anna, Live: true}, {Number: 8, Session: ben, Live: true}}}
	owners := []conclave.ShardOwner{
		{Shard: 0, Fence: 1, Worker: 7}, {Shard: 1, Fence: 2, Worker: 7}, {Shard: 2, Fence: 3, Worker: 7, Moving: true}, {Shard: 3}, {Shard: 4, Fence: 4, Worker: 8},
	}
	set := mapOf(info, owners, ownership{})
	if set.Map[0].Has != "0–2" || set.Map[0].Moves != "2" || set.Map[1].Has != "4" || set.Map[1].Moves != "" || set.Free != "3" {
		t.Errorf("%+v", set)
	}
	if only := mapOf(info, owners, ownership{session: ben}); len(only.Map) != 1 || only.Map[0].Has != "4" {
		t.Errorf("%+v", only)
	}
	if none := mapOf(info, owners, ownership{session: conclave.SessionID{3}}); none != nil {
		t.Errorf("%+v", none)
	}
}

// Each worker is shown with its own shards, also where two have one session, or ended under one name or none.
func TestMapOf_WorkersOfOneSession(t *testing.T) {
	anna := conclave.SessionID{1}
	info := conclave.ShardsInfo{Name: "orders", Count: 5, Workers: []conclave.ShardWorkerInfo{
		{Number: 1, Session: anna, Live: true}, {Number: 2, Session: anna, Live: true}, {Number: 3, Name: "ben"}, {Number: 4, Name: "ben"}, {Number: 5},
	}}
	owners := []conclave.ShardOwner{
		{Shard: 0, Fence: 1, Session: anna, Worker: 1}, {Shard: 1, Fence: 2, Session: anna, Worker: 2, Moving: true},
		{Shard: 2, Worker: 3, Reserved: "ben"}, {Shard: 3, Worker: 4, Reserved: "ben"}, {Shard: 4, Worker: 5},
	}
	set := mapOf(info, owners, ownership{})
	for i, want := range []shardWorker{{Has: "0"}, {Has: "1", Moves: "1"}, {Waits: "2"}, {Waits: "3"}, {Waits: "4"}} {
		if w := set.Map[i]; w.Has != want.Has || w.Moves != want.Moves || w.Waits != want.Waits {
			t.Errorf("worker %d: %+v", w.Number, w)
		}
	}
	if set.Free != "" {
		t.Errorf("free: %s", set.Free)
	}
}
