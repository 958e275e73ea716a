package conclavehttp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/display"
)

// timeline returns what the timeline shows of a history, the latest first.
func timeline(history []conclave.HistoryEvent, members memberNames) (shown []happening) {
	former := formerNames(history)
	name := func(id conclave.MemberID, then string) string {
		if m, ok := members[id]; ok && m.Name != "" || id == 0 {
			return members.of(id)
		}
		return cmp.Or(then, former[id], id.String())
	}
	for _, e := range slices.Backward(latest(foldGroups(history))) {
		e.Member, e.By = name(e.HistoryEvent.Member, e.MemberName), name(e.HistoryEvent.By, e.ByName)
		e.Class = classOf(e.HistoryEvent)
		shown = append(shown, e)
	}
	return shown
}

// formerNames returns the names of members in a history, the latest of each. That a member was removed is
// later than the events about it, so as long as these are there its name is.
func formerNames(history []conclave.HistoryEvent) map[conclave.MemberID]string {
	names := make(map[conclave.MemberID]string)
	for _, e := range history {
		if e.MemberName != "" {
			names[e.Member] = e.MemberName
		}
		if e.ByName != "" {
			names[e.By] = e.ByName
		}
	}
	return names
}

const shortElection = time.Second

// foldGroups is foldElections for each group.
func foldGroups(history []conclave.HistoryEvent) (folded []happening) {
	of := make(map[string][]conclave.HistoryEvent)
	for _, e := range history {
		of[e.Group] = append(of[e.Group], e)
	}
	for _, events := range of { // order: sorted below
		folded = append(folded, foldElections(events)...)
	}
	slices.SortFunc(folded, func(a, b happening) int { return cmp.Compare(a.Seq, b.Seq) })
	return folded
}

// foldElections drops that there was no leader where the next one followed within a second. That event has for how
// long.
func foldElections(history []conclave.HistoryEvent) (folded []happening) {
	lost := -1 // the index of the first event without a leader since the last one
	for _, e := range history {
		switch {
		case e.Kind != conclave.HistoryLeader:
			folded = append(folded, happening{HistoryEvent: e})
			continue
		case e.Member == 0:
			folded = append(folded, happening{HistoryEvent: e})
			if lost < 0 {
				lost = len(folded) - 1
			}
			continue
		}
		leads := happening{HistoryEvent: e}
		if lost >= 0 {
			since := folded[lost].Seq
			if d := max(e.Time.Sub(folded[lost].Time), time.Millisecond); d < shortElection {
				leads.Leaderless = d
				folded = slices.DeleteFunc(folded, func(h happening) bool {
					return h.Kind == conclave.HistoryLeader && h.HistoryEvent.Member == 0 && h.Seq >= since
				})
			}
			lost = -1
		}
		folded = append(folded, leads)
	}
	return folded
}

// latest returns the latest events about members, and the latest about sessions and holds; and as many of further groups.
func latest(events []happening) []happening {
	var kept []happening
	shown := make(map[[2]bool]int)
	for _, e := range slices.Backward(events) {
		of := [2]bool{e.Kind >= conclave.HistorySessionExpired, e.Group != ""}
		if shown[of]++; shown[of] <= maxTimeline {
			kept = append(kept, e)
		}
	}
	slices.Reverse(kept)
	return kept
}

// Reconciling is that of the status, with the names of members.
func (s *snapshot) Reconciling() string {
	text := s.Status.Reconciling
	for id, m := range s.members {
		if m.Name != "" {
			text = strings.ReplaceAll(text, id.String(), display.Name(m.Name))
		}
	}
	return text
}
