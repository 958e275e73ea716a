package conclavehttp

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A stream whose group is created gets the parts of that, and those of the default group when it is deleted, however old.
func TestBoard_StreamFollowsItsGroup(t *testing.T) {
	b := newBoard(source{}, nil)
	b.own = map[string][]part{"": {{ID: "summary", version: 1}}, "tenant": {{ID: "summary", version: 2}}}
	b.version = 2
	without, with := new(snapshot), new(snapshot)
	with.Metrics.Groups = []conclave.GroupMetrics{{Name: "tenant"}}
	f := follow(view{Group: "tenant"})
	for i, row := range []struct {
		latest *snapshot
		want   uint64 // version of the part; 0: none
	}{{without, 1}, {without, 0}, {with, 2}, {with, 0}, {without, 1}, {without, 0}} {
		b.latest = row.latest
		var got uint64
		for _, p := range b.news(f) {
			got += p.version
		}
		if got != row.want {
			t.Errorf("%d: version %d, want %d", i, got, row.want)
		}
	}
}

// Locks of the same name in two groups have holders of their own, and so have sessions that have ended.
func TestSeenHolders_OfTwoGroups(t *testing.T) {
	var h seenHolders
	session := conclave.SessionID{7}
	for _, group := range []string{"", "tenant"} {
		h.note(time.Unix(1, 0), lockID{group, "x"}, true, formerHolder{Holder: conclave.LockOwner{Session: session}, Fence: 1})
	}
	h.note(time.Unix(2, 0), lockID{"tenant", "x"}, false, formerHolder{})
	if got := h.former(lockID{"", "x"}, nil); len(got) != 0 {
		t.Errorf("the holder in the default group is a former one: %+v", got)
	}
	ended := conclave.HistoryEvent{Kind: conclave.HistorySessionExpired, Session: session, Time: time.Unix(2, 0)}
	for group, text := range map[string]string{"": "", "tenant": "its session expired"} {
		ended.Group = group
		got := h.former(lockID{"tenant", "x"}, []conclave.HistoryEvent{ended})
		if len(got) != 1 || got[0].Text() != text {
			t.Errorf("ended in group %q: %+v", group, got)
		}
	}
}
