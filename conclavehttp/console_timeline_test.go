package conclavehttp

import (
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A short election is one line, a long one is not, and other events of the time remain.
func TestTimeline_FoldsShortElections(t *testing.T) {
	began := time.Now()
	var events []conclave.HistoryEvent
	add := func(after time.Duration, e conclave.HistoryEvent) {
		e.Seq, e.Time = uint64(len(events)+1), began.Add(after)
		events = append(events, e)
	}
	leader := func(after time.Duration, member conclave.MemberID) {
		add(after, conclave.HistoryEvent{Kind: conclave.HistoryLeader, Member: member})
	}
	leader(0, 1)
	leader(10*time.Second, 0)
	add(10*time.Second, conclave.HistoryEvent{Kind: conclave.HistoryRedundancy})
	leader(10*time.Second+20*time.Millisecond, 0)
	leader(10*time.Second+48*time.Millisecond, 2)
	leader(20*time.Second, 0)
	leader(21*time.Second, 3)
	leader(30*time.Second, 0)
	type line struct {
		seq        uint64
		leader     conclave.MemberID
		leaderless time.Duration
	}
	var got []line
	for _, e := range slices.Backward(timeline(events, nil)) {
		got = append(got, line{e.Seq, e.HistoryEvent.Member, e.Leaderless})
	}
	want := []line{{1, 1, 0}, {3, 0, 0}, {5, 2, 48 * time.Millisecond}, {6, 0, 0}, {7, 3, 0}, {8, 0, 0}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Elections of one group do not end those of another, and events of further groups push no event of the default group out.
func TestTimeline_FurtherGroups(t *testing.T) {
	began := time.Now()
	var events []conclave.HistoryEvent
	leader := func(group string, after time.Duration, member conclave.MemberID) {
		events = append(events, conclave.HistoryEvent{
			Seq: uint64(len(events) + 1), Time: began.Add(after), Kind: conclave.HistoryLeader, Group: group, Member: member,
		})
	}
	leader("", 0, 1)
	leader("a", 0, 0)
	leader("", time.Minute, 2)
	leader("a", time.Minute, 2)
	for i := range 2 * maxTimeline {
		leader("b", time.Hour, conclave.MemberID(i+1))
	}
	var shown []uint64
	for _, h := range timeline(events, nil) {
		if h.Group == "" {
			shown = append(shown, h.Seq)
			if h.Leaderless != 0 {
				t.Errorf("%+v", h)
			}
		}
	}
	if all := timeline(events[:4], nil); len(all) != 4 || !slices.Equal(shown, []uint64{3, 1}) {
		t.Errorf("%d lines of two groups; of the default one %v", len(all), shown)
	}
}

// A removed member has its name in the events before its removal too.
func TestTimeline_NamesFormerMembers(t *testing.T) {
	events := []conclave.HistoryEvent{
		{Seq: 1, Kind: conclave.HistoryLeader, Member: 7},
		{Seq: 2, Kind: conclave.HistoryMemberReplaced, Member: 7, MemberName: "ben", By: 8, ByName: "clara"},
		{Seq: 3, Kind: conclave.HistoryMemberRemoved, Member: 7, MemberName: "ben"},
		{Seq: 4, Kind: conclave.HistorySessionRemoved, Member: 7},
		{Seq: 5, Kind: conclave.HistoryLeader, Member: 9},
		{Seq: 6, Kind: conclave.HistoryLeader, Member: 10},
	}
	shown := timeline(events, memberNames{8: {Name: "clara renamed"}, 9: {Name: "anna"}})
	slices.Reverse(shown)
	for i, want := range []string{"ben", "ben", "ben", "ben", "anna", conclave.MemberID(10).String()} {
		if shown[i].Member != want {
			t.Errorf("event %d is about %q, want %q", i+1, shown[i].Member, want)
		}
	}
	if shown[1].By != "clara renamed" {
		t.Errorf("in place of it votes %q", shown[1].By)
	}
}

// What the leader does about the members is said with their names.
func TestSnapshot_ReconcilingNamesMembers(t *testing.T) {
	s := &snapshot{members: memberNames{7: {Name: "ben\n"}, 8: {}}}
	s.Status.Reconciling = "replacing " + conclave.MemberID(7).String() + " by " + conclave.MemberID(8).String()
	if got, want := s.Reconciling(), `replacing ben\n by `+conclave.MemberID(8).String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
