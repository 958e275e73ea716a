package virtualtime

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// checkScenario is a group in which a member has a check with a TTL, and sessions
// that depend on it or do not.
type checkScenario struct {
	*grouptest.Group
	owner       int
	check       *conclave.Check
	sent        time.Time // when the check was refreshed last
	dependent   []*probe  // end with the check
	independent []*probe  // do not
}

const (
	checkTTL = 10 * time.Second
	// checkDelay keeps the holders' own deadlines out of these tests: see
	// early_loss_test.go.
	checkDelay = time.Minute
	// checkSlack is how late a check may become critical: the leader looks at each
	// heartbeat, and group time may be one heartbeat behind.
	checkSlack = 2 * heartbeat
)

// newCheckScenario registers the check on the leader or on another member.
func newCheckScenario(g *grouptest.Group, leads bool) *checkScenario {
	s := &checkScenario{Group: g}
	leader := g.Leader()
	s.owner = leader
	if !leads {
		s.owner = g.Others(leader)[0]
	}
	other := slices.IndexFunc(g.Nodes, func(n *conclave.Node) bool { return n != g.Nodes[leader] && n != g.Nodes[s.owner] })
	if other < 0 {
		other = s.owner
	}
	s.check = grouptest.MustCheck(g.T, g.Nodes[s.owner], "pulse", checkTTL)
	grouptest.MustCheck(g.T, g.Nodes[s.owner], "steady", 0)
	s.dependent = []*probe{
		newProbe(g, s.owner, other, "on pulse", longTTL, checkDelay, []string{"pulse"}),
		newProbe(g, s.owner, other, "on pulse too", longTTL, checkDelay-10*time.Second, []string{"steady", "pulse"}),
		newProbe(g, s.owner, other, "on pulse without ttl", conclave.NoTTL, checkDelay, []string{"pulse"}),
	}
	s.independent = []*probe{
		newProbe(g, s.owner, other, "on steady", longTTL, checkDelay, []string{"steady"}),
		newProbe(g, s.owner, other, "on nothing", conclave.NoTTL, checkDelay, []string{}),
	}
	if other != s.owner {
		namesake := grouptest.MustCheck(g.T, g.Nodes[other], "pulse", checkTTL) // another member's
		go func() {
			for namesake.Pass(g.T.Context()) == nil {
				select {
				case <-time.After(checkTTL / 4): // virtual
				case <-g.T.Context().Done():
				}
			}
		}()
		s.independent = append(s.independent, newProbe(g, other, s.owner, "on a namesake", longTTL, checkDelay, []string{"pulse"}))
	}
	s.refresh(s.check.Pass)
	return s
}

// refresh sets the check's state. That commits at once, so that the check's TTL
// counts from here.
func (s *checkScenario) refresh(set func(context.Context) error) {
	s.T.Helper()
	s.sent = time.Now()
	grouptest.Must(s.T, set(grouptest.Within(s.T, 5*election)))
	wantBetween(s.T, "the acknowledgement", time.Now(), s.sent, s.sent.Add(heartbeat))
}

// A check becomes critical when its TTL has passed since its last refresh. With it
// end exactly the sessions that depend on it, and what they hold is granted to
// others after their lock-delay.
func TestCheckTTL(t *testing.T) {
	for _, test := range []struct {
		name    string
		members int
		leads   bool // the check's member
		run     func(*checkScenario)
	}{
		{"not refreshed", 3, false, (*checkScenario).expired},
		{"not refreshed by the leader", 3, true, (*checkScenario).expired},
		{"not refreshed, group of one", 1, true, (*checkScenario).expired},
		{"refreshed in time", 3, false, (*checkScenario).refreshed},
		{"refreshed in time, group of one", 1, true, (*checkScenario).refreshed},
		{"refreshed too late", 3, false, (*checkScenario).late},
		{"registered again", 3, false, (*checkScenario).registered},
		{"leadership transferred", 3, false, (*checkScenario).leadershipTransferred},
		{"leadership transferred by its member", 3, true, (*checkScenario).leadershipTransferred},
		{"leader killed", 3, false, (*checkScenario).leaderKilled},
		{"no leader for some time", 3, false, (*checkScenario).withoutLeader},
		{"process killed", 3, false, (*checkScenario).ownerKilled},
		{"deregistered", 3, false, (*checkScenario).deregistered},
		{"deregistered, group of one", 1, true, (*checkScenario).deregistered},
		{"set to critical", 3, false, (*checkScenario).failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, test.members, func(g *grouptest.Group) { test.run(newCheckScenario(g, test.leads)) })
		})
	}
}

// wantCritical checks when the check becomes critical, by what depends on it.
func (s *checkScenario) wantCritical(from, to time.Time) {
	s.T.Helper()
	s.wantEnd(from, to)
	_, err := s.Nodes[s.owner].NewSession(grouptest.Within(s.T, election), &conclave.SessionConfig{Checks: []string{"pulse"}})
	grouptest.WantError(s.T, err, conclave.ErrCheckCritical)
}

// wantEnd checks when the dependent sessions end, that what they held is granted to
// others, and that nothing else ends.
func (s *checkScenario) wantEnd(from, to time.Time) {
	s.T.Helper()
	var ended []time.Time
	for _, d := range s.dependent {
		ended = append(ended, d.awaitEnd(s.Running()...))
	}
	for i, d := range s.dependent {
		wantBetween(s.T, "the end of "+d.name, ended[i], from, to)
		wantAt(s.T, "the end of all together", ended[i], ended[0])
		d.wantGranted(ended[i])
		if s.Nodes[s.owner] != nil {
			grouptest.WantError(s.T, d.session.Err(), conclave.ErrSessionExpired)
		}
	}
	s.wantIndependentAlive()
}

// wantIndependentAlive checks that the independent sessions are alive, those of a
// killed process in the group only.
func (s *checkScenario) wantIndependentAlive() {
	s.T.Helper()
	for _, a := range s.independent {
		a.wantInGroup(s.Running()...)
		if err := a.session.Err(); err != nil && a.node.Err() == nil {
			s.T.Errorf("the process of %q has lost it: %v", a.name, err)
		}
	}
}

// wantAllAlive checks that nothing has ended so far.
func (s *checkScenario) wantAllAlive() {
	s.T.Helper()
	for _, d := range s.dependent {
		d.wantAlive(s.Running()...)
	}
	s.wantIndependentAlive()
}

func (s *checkScenario) expired() {
	s.wantCritical(s.sent.Add(checkTTL), s.sent.Add(checkTTL+checkSlack))
}

// Each refresh starts the TTL again, however late; a warning counts as a pass does.
func (s *checkScenario) refreshed() {
	for _, set := range []func(context.Context) error{s.check.Pass, s.check.Warn, s.check.Warn, s.check.Pass} {
		pass(time.Until(s.sent.Add(checkTTL - 10*time.Millisecond)))
		s.refresh(set)
	}
	s.wantAllAlive()
	s.expired()
}

// Ended sessions stay ended; the check itself passes again.
func (s *checkScenario) late() {
	s.expired()
	s.refresh(s.check.Pass)
	for _, d := range s.dependent {
		if _, alive := grouptest.FindSession(s.T, s.Nodes[s.owner], d.session.ID()); alive {
			s.T.Errorf("%q is alive again", d.name)
		}
	}
	s.dependent = []*probe{newProbe(s.Group, s.owner, s.owner, "new on pulse", longTTL, checkDelay, []string{"pulse"})}
	s.expired()
}

// A check that is registered again has its new TTL, from then on.
func (s *checkScenario) registered() {
	pass(checkTTL / 2)
	began := time.Now()
	grouptest.MustCheck(s.T, s.Nodes[s.owner], "pulse", 3*checkTTL)
	s.wantCritical(began.Add(3*checkTTL), began.Add(3*checkTTL+checkSlack))
}

// fullTTL checks that a leader elected between began and now has given the check a
// full TTL.
func (s *checkScenario) fullTTL(began time.Time) {
	s.T.Helper()
	elected := time.Now()
	s.wantCritical(began.Add(checkTTL), elected.Add(checkTTL+checkSlack))
}

func (s *checkScenario) leadershipTransferred() {
	pass(checkTTL * 3 / 4)
	began := time.Now()
	grouptest.Must(s.T, s.Nodes[s.Leader()].TransferLeadership(grouptest.Within(s.T, election), 0))
	s.fullTTL(began)
}

func (s *checkScenario) leaderKilled() {
	pass(checkTTL * 3 / 4)
	began := time.Now()
	s.Kill(s.Leader())
	s.Leader()
	s.fullTTL(began)
}

// Without a leader no check can be refreshed, and none becomes critical.
func (s *checkScenario) withoutLeader() {
	for i := range s.Nodes {
		s.Net.Isolate(i)
	}
	pass(3 * checkTTL)
	for _, d := range s.dependent {
		if err := d.session.Err(); err != nil {
			s.T.Errorf("%q has ended without a leader: %v", d.name, err)
		}
	}
	began := time.Now()
	for i := range s.Nodes {
		s.Net.Rejoin(i)
	}
	s.Leader()
	s.fullTTL(began)
}

// A check belongs to the member: it outlives the process until its TTL has passed.
func (s *checkScenario) ownerKilled() {
	s.Kill(s.owner)
	s.wantEnd(s.sent.Add(checkTTL), s.sent.Add(checkTTL+checkSlack))
}

// wantEndAtOnce checks that do ends the dependent sessions at once.
func (s *checkScenario) wantEndAtOnce(do func(context.Context) error) {
	s.T.Helper()
	pass(checkTTL / 2)
	began := time.Now()
	grouptest.Must(s.T, do(grouptest.Within(s.T, election)))
	s.wantEnd(began, began.Add(heartbeat))
}

func (s *checkScenario) deregistered() {
	s.wantEndAtOnce(s.check.Deregister)
	_, err := s.Nodes[s.owner].NewSession(grouptest.Within(s.T, election), &conclave.SessionConfig{Checks: []string{"pulse"}})
	grouptest.WantError(s.T, err, conclave.ErrInvalid)
}

func (s *checkScenario) failed() {
	s.wantEndAtOnce(s.check.Fail)
	s.refresh(s.check.Warn)
	s.dependent = []*probe{newProbe(s.Group, s.owner, s.owner, "new on pulse", longTTL, checkDelay, []string{"pulse"})}
	s.expired()
}
