package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// What operators read and write, in JSON.

type status struct {
	ID          conclave.MemberID `json:"id"`
	Name        string            `json:"name"`
	Role        string            `json:"role"`
	Leader      conclave.MemberID `json:"leader"` // zeros: none is known
	Term        uint64            `json:"term"`
	Commit      uint64            `json:"commit"`
	Applied     uint64            `json:"applied"`
	Redundancy  int               `json:"redundancy"`  // voters that may fail; negative: no quorum
	Reconciling string            `json:"reconciling"` // on the leader: what is changed or waited for
	Members     []member          `json:"members"`
}

type member struct {
	ID          conclave.MemberID `json:"id"`
	Name        string            `json:"name"`
	Addr        string            `json:"addr"`
	Role        string            `json:"role"`
	Alive       bool              `json:"alive"`
	Lag         uint64            `json:"lag"`         // on the leader: entries not acknowledged
	LastContact string            `json:"lastContact"` // how long ago, or "never"
}

func statusOf(s conclave.Status) status {
	all := status{
		ID: s.ID, Name: s.Name, Role: roleOf(s.Role), Leader: s.Leader, Term: s.Term, Commit: s.Commit, Applied: s.Applied,
		Redundancy: s.Redundancy, Reconciling: s.Reconciling,
	}
	for _, m := range s.Members {
		all.Members = append(all.Members, member{
			ID: m.ID, Name: m.Name, Addr: m.Addr, Role: roleOf(m.Role), Alive: m.Alive, Lag: m.Lag, LastContact: lastContact(m),
		})
	}
	return all
}

func lastContact(m conclave.Member) string {
	if m.LastContact < 0 {
		return "never"
	}
	return m.LastContact.String()
}

func roleOf(r conclave.Role) string {
	if r == conclave.Voter {
		return "voter"
	}
	return "standby"
}

// settings is conclave.GroupConfig.
type settings struct {
	Voters       int    `json:"voters"`
	ReplaceAfter period `json:"replaceAfter"` // 0s: never
	RemoveAfter  period `json:"removeAfter"`  // 0s: never
}

func settingsOf(c conclave.GroupConfig) settings {
	return settings{c.Voters, period(c.ReplaceAfter), period(c.RemoveAfter)}
}

func (s settings) groupConfig() conclave.GroupConfig {
	return conclave.GroupConfig{Voters: s.Voters, ReplaceAfter: time.Duration(s.ReplaceAfter), RemoveAfter: time.Duration(s.RemoveAfter)}
}

// period is a time.Duration that reads "1m0s" in JSON.
type period time.Duration

func (p period) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(p).String()) }

func (p *period) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	*p = period(d)
	return err
}

// memberID parses an ID as it is printed; "" is 0.
func memberID(text string) (id conclave.MemberID, err error) {
	if text != "" {
		if err = id.UnmarshalText([]byte(text)); err != nil {
			err = fmt.Errorf("%w member: want the 16 digits that status prints, got %q", conclave.ErrInvalid, text)
		}
	}
	return id, err
}
