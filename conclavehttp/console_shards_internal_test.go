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
	info := conclave.ShardsInfo{Name: "orders", Count: 5, Workers: []conclave.ShardWorkerInfo{{Session: anna, Live: true}, {Session: ben, Live: true}}}
	owners := []conclave.ShardOwner{{Shard: 0, Fence: 1, Session: anna}, {Shard: 1, Fence: 2, Session: anna}, {Shard: 2, Fence: 3, Session: anna, Moving: true}, {Shard: 3}, {Shard: 4, Fence: 4, Session: ben}}
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
