package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/conclave-go/conclave/examples/oneprocess"
)

// sessionTTL is how long a holder may go without renewing its session. The
// default is 10 s; here it is short so that the story is.
const sessionTTL = 3 * time.Second

type member = oneprocess.Member

type group []*member

// newGroup returns the members, each with a directory.
func newGroup(dir string) group {
	g := oneprocess.Group("anna", "ben", "clara")
	for _, m := range g {
		m.Config.Dir = filepath.Join(dir, m.Name())
		m.Config.SessionTTL = sessionTTL
	}
	return g
}

func (g group) start(ctx context.Context, members ...*member) error {
	return oneprocess.Start(ctx, g, members...)
}

// roles returns the leader and the two other members.
func (g group) roles() (leader, second, third *member, err error) {
	status := g[0].Status()
	var followers []*member
	for _, m := range g {
		if m.Status().ID == status.Leader {
			leader = m
		} else {
			followers = append(followers, m)
		}
	}
	if leader == nil || len(followers) != 2 {
		return nil, nil, nil, fmt.Errorf("%s knows no leader: %+v", g[0].Name(), status)
	}
	return leader, followers[0], followers[1], nil
}
