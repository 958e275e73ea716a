package conclave

import (
	"context"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
)

// The state that was read may lack a key because it was deleted after a change that the watch still has: the key must
// not return, not even until its deletion arrives.
func TestFollow_ChangeBeforeState(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	there, err := n.KV().Put(t.Context(), "there", []byte("now"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []Event
	f := follower{
		kv: n.KV(), known: map[string]uint64{"listed": 5}, after: 3, until: there.ModifyIndex + 10,
		yield: func(e Event) bool { seen = append(seen, e); return true },
	}
	for _, c := range []fact.KeyChange{
		{Index: 4, Entry: &fact.Entry{Key: "deleted", ModifyIndex: 4}},
		{Index: 5, Entry: &fact.Entry{Key: "deleted", ModifyIndex: 4}, Deleted: true},
		{Index: 4, Entry: &fact.Entry{Key: "listed", ModifyIndex: 4}, Deleted: true},
		{Index: 5, Entry: &fact.Entry{Key: "listed", ModifyIndex: 5}},
		{Index: 4, Entry: &fact.Entry{Key: "there", ModifyIndex: 4, Value: []byte("before")}},
		{Index: there.ModifyIndex, Entry: &fact.Entry{Key: "there", ModifyIndex: there.ModifyIndex}},
		{Index: f.until + 1, Entry: &fact.Entry{Key: "later", ModifyIndex: f.until + 1}},
		{Index: f.until + 2, Entry: &fact.Entry{Key: "later", ModifyIndex: f.until + 1}, Deleted: true},
	} {
		if more, err := f.changed(t.Context(), c); !more || err != nil {
			t.Fatal(more, err)
		}
	}
	if len(seen) != 3 || string(seen[0].Entry.Value) != "now" || seen[0].Index != there.ModifyIndex || seen[1].Entry.Key != "later" || !seen[2].Deleted {
		t.Errorf("%+v", seen)
	}
}
