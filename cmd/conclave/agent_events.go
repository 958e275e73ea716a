package main

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/conclave-go/conclave"
)

const eventsPath = "/events"

// historyView is an agent's answer to conclave events.
type historyView struct {
	Run    string        `json:"run"` // of the process: each counts its events from 1
	Events []noticedView `json:"events"`
}

// noticedView is an event of a member's history. What does not belong to its kind is left out.
type noticedView struct {
	Seq        uint64              `json:"seq"`
	Time       time.Time           `json:"time"` // when the member noticed it
	Kind       string              `json:"kind"`
	Group      string              `json:"group,omitempty"` // a further group
	Member     *conclave.MemberID  `json:"member,omitempty"`
	MemberName string              `json:"memberName,omitempty"`
	By         *conclave.MemberID  `json:"by,omitempty"` // that votes in place of member
	ByName     string              `json:"byName,omitempty"`
	Term       uint64              `json:"term,omitempty"`
	Redundancy *int                `json:"redundancy,omitempty"`
	Count      int                 `json:"count"` // how many events it stands for
	Session    *conclave.SessionID `json:"session,omitempty"`
	Name       string              `json:"name,omitempty"` // of a session, or of what was lost
	Held       int                 `json:"held,omitempty"`
	Fence      *conclave.Fence     `json:"fence,omitempty"`
}

// events answers with what the member has noticed: after an event, if the client has read that of this process.
func (s *agentServer) events(w http.ResponseWriter, r *http.Request) {
	var after uint64
	parameters := r.URL.Query() // FormValue would read a form in the body as well, of any size
	if parameters.Get("run") == s.run {
		after, _ = strconv.ParseUint(parameters.Get("after"), 10, 64) // 0 without one: all events
	}
	s.show(w, r, func(node *conclave.Node) any {
		now := time.Now() // before the history: what is settled by now does not change in it
		history, names := node.History(), newEventNames(node)
		v := historyView{Run: s.run, Events: []noticedView{}}
		for _, e := range history {
			names.note(e)
		}
		if parameters.Get("settled") != "" {
			history = settled(history, now)
		}
		for _, e := range history {
			if e.Seq > after {
				v.Events = append(v.Events, names.event(e))
			}
		}
		return v
	})
}

// counting is for how long an event about sessions or holds counts further ones, as conclave.HistoryEvent says.
const counting = time.Second

// settled returns the events before the first one that may yet count others, so that a client that follows them gets each once.
func settled(history []conclave.HistoryEvent, now time.Time) []conclave.HistoryEvent {
	for i, e := range history {
		if e.Kind >= conclave.HistorySessionExpired && now.Sub(e.Time) <= counting {
			return history[:i]
		}
	}
	return history
}

// eventNames are the names of members, former ones included.
type eventNames map[conclave.MemberID]string

func newEventNames(node *conclave.Node) eventNames {
	names := make(eventNames)
	for _, m := range node.Status().Members {
		if m.Name != "" {
			names[m.ID] = m.Name
		}
	}
	return names
}

// note keeps what an event says about members that are in no list any more.
func (n eventNames) note(e conclave.HistoryEvent) {
	n[e.Member], n[e.By] = cmp.Or(n[e.Member], e.MemberName), cmp.Or(n[e.By], e.ByName)
}

func (n eventNames) event(e conclave.HistoryEvent) noticedView {
	v := noticedView{
		Seq: e.Seq, Time: e.Time.UTC(), Kind: e.Kind.String(), Group: e.Group, MemberName: cmp.Or(e.MemberName, n[e.Member]), ByName: cmp.Or(e.ByName, n[e.By]),
		Term: e.Term, Count: e.Count, Name: e.Name, Held: e.Held,
	}
	if e.Member != 0 {
		v.Member = &e.Member
	}
	if e.By != 0 {
		v.By = &e.By
	}
	if e.Kind == conclave.HistoryRedundancy {
		v.Redundancy = &e.Voters
	}
	if e.Session != (conclave.SessionID{}) {
		v.Session = &e.Session
	}
	if e.Fence != 0 {
		v.Fence = &e.Fence
	}
	return v
}
