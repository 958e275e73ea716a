package conclavehttp

import (
	"fmt"
	"strings"

	"github.com/conclave-go/conclave"
)

// quorum is what the summary shows of the voters.
type quorum struct {
	Voters, Alive int
	Redundancy    int
	Dead          []string // voters
	Class         string   // how serious it is
}

// Quorum returns the state of the quorum, as this node's failure detector sees it.
func (s *snapshot) Quorum() quorum {
	q := quorum{Redundancy: s.Status.Redundancy, Class: "good"}
	for _, m := range s.Status.Members {
		switch {
		case m.Role != conclave.Voter:
			continue
		case m.Alive || s.IsSelf(m.ID):
			q.Alive++
		default:
			q.Dead = append(q.Dead, s.members.of(m.ID))
		}
		q.Voters++
	}
	switch {
	case q.Redundancy < 0:
		q.Class = "bad"
	case q.Redundancy == 0:
		q.Class = "warn"
	}
	return q
}

const maxDead = 5 // voters that are named

// Remedy returns what to do so that more voters may fail; "": nothing.
func (q quorum) Remedy() string {
	dead := strings.Join(q.Dead[:min(len(q.Dead), maxDead)], ", ")
	if more := len(q.Dead) - maxDead; more > 0 {
		dead += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case q.Redundancy > 0:
		return ""
	case q.Redundancy < 0 && dead != "":
		return "No command commits: start " + dead + " again. If their directories are lost, see conclave recover."
	case q.Redundancy < 0:
		return "No command commits."
	case dead != "":
		return "The next failure of a voter stops the group: start " + dead + " again, or replace what does not come back."
	case q.Voters < 3:
		return "The next failure of a voter stops the group: add members, for three voters."
	}
	return "The next failure of a voter stops the group."
}
