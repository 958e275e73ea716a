package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/conclave-go/conclave/examples/oneprocess"
)

// sessionTTL is how long a holder may go without renewing its session. With a much
// shorter one than this, the default, a busy machine that stalls would also end
// sessions that the story needs.
const sessionTTL = 10 * time.Second

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

// roles returns the leader and the two other members. It waits for a leader.
func (g group) roles(ctx context.Context) (leader, second, third *member, err error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		status := g[0].Status()
		var followers []*member
		for _, m := range g {
			if m.Status().ID == status.Leader {
				leader = m
			} else {
				followers = append(followers, m)
			}
		}
		if leader != nil && len(followers) == 2 {
			return leader, followers[0], followers[1], nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil, nil, fmt.Errorf("%s knows no leader: %w: %+v", g[0].Name(), ctx.Err(), status)
		}
	}
}
