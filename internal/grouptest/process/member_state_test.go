package process

import (
	"context"
	"slices"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// sessions returns the sessions of the process's member.
func (s *served) sessions(ctx context.Context) (own []conclave.SessionID, err error) {
	list, err := grouptest.Collect(s.node.Sessions(ctx))
	for _, info := range list {
		if info.Node == s.node.Status().ID {
			own = append(own, info.ID)
		}
	}
	return own, err
}

// alive returns the members that gossip shows alive to the process.
func (s *served) alive() (ids []conclave.MemberID) {
	for _, member := range s.node.Status().Members {
		if member.Alive {
			ids = append(ids, member.ID)
		}
	}
	return ids
}

func (r report) alive(member uint64) bool { return slices.Contains(r.Alive, conclave.MemberID(member)) }
