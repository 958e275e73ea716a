package process

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

func (s *served) campaign(ctx context.Context, election string) error {
	_, err := s.node.Election(election).Campaign(ctx, nil)
	return err
}

// critical reports the names of the checks of a member that are critical.
func (s *served) critical(ctx context.Context, r report, member conclave.MemberID) report {
	for c, err := range s.node.Checks(ctx) {
		if err != nil {
			return r.failed(err)
		}
		if c.Node == member && c.State == conclave.CheckCritical {
			r.Critical = append(r.Critical, c.Name)
		}
	}
	return r
}

// candidate has a process campaign, and gets the outcome.
func candidate(p *process, election string) <-chan error {
	elected := make(chan error, 1)
	go func() {
		_, err := p.do(order{Do: "campaign", Lock: election})
		elected <- err
	}()
	return elected
}

// checked is the configuration of a group whose own sessions depend on the check process, and end by no time that a test
// lasts for.
func checked() memberConfig {
	return memberConfig{TTL: 12 * time.Hour, Checks: []string{conclave.ProcessCheck}}
}

// awaitAllConnected waits until each member is connected to each other one: a voter has evidence of processes only that it
// has been connected with.
func (g *processGroup) awaitAllConnected() {
	g.t.Helper()
	for i := range g.members {
		g.awaitConnected(i)
	}
}

// When the leader of an election is killed, another candidate is elected, although no session expires: no order lasts for
// longer than a minute. The leader of the group is nothing else than another process. The process that is started again is
// a candidate like others.
func TestProcessCheck_LeaderOfAnElectionKilled(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			g := processesWith(t, 3, checked())
			g.awaitAllConnected()
			victim := g.leader()
			if role == "follower" {
				victim = (victim + 1) % 3
			}
			killed, other := g.members[victim], g.members[(victim+1)%3]
			if err := <-candidate(killed, "x"); err != nil {
				t.Fatal(err)
			}
			elected := candidate(other, "x")

			killed.kill()
			if err := <-elected; err != nil {
				t.Fatal(err)
			}

			g.restart(victim)
			g.awaitAllConnected()
			again := candidate(g.members[victim], "x")
			other.kill()
			if err := <-again; err != nil {
				t.Error(err)
			}
		})
	}
}
