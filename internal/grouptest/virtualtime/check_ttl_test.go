package virtualtime

import (
	"context"
	"slices"
	"testing"
	"time"
)

// checkScene is a group in which a member has a check with a TTL, and sessions of
// which some depend on it.
type checkScene struct {
	*grouptest.Group
	owner     int
	check     *Check
	sent      time.Time // when the check was refreshed last
	dependent []*stake  // what has to end with the check
	apart     []*stake  // what must not
}

const (
	checkTTL   = 10 * time.Second
	checkDelay = 4 * time.Second
	// checkSlack is how much later than by its time a check may become critical:
	// the leader looks at each beat, and group time runs behind by one.
	checkSlack = 2 * grouptest.BubbleHeartbeat
)

// newCheckScene has the check's member lead the group, or not.
func newCheckScene(g *grouptest.Group, leads bool) *checkScene {
	s := &checkScene{bubbleGroup: g}
	leader := g.Leader(-1)
	s.owner = leader
	if !leads {
		s.owner = g.Others(leader)[0]
	}
	other := slices.IndexFunc(g.Nodes, func(n *Node) bool { return n != g.Nodes[leader] && n != g.Nodes[s.owner] })
	if other < 0 {
		other = s.owner
	}
	s.check = grouptest.MustCheck(g.t, g.Nodes[s.owner], "pulse", checkTTL)
	grouptest.MustCheck(g.t, g.Nodes[s.owner], "steady", 0)
	s.dependent = []*stake{
		g.stake(s.owner, other, "on pulse", stakeTTL, checkDelay, []string{"pulse"}),
		g.stake(s.owner, other, "on pulse too", stakeTTL, NoLockDelay, []string{"steady", "pulse"}),
		g.stake(s.owner, other, "on pulse without ttl", NoTTL, checkDelay, []string{"pulse"}),
	}
	s.apart = []*stake{
		g.stake(s.owner, other, "on steady", stakeTTL, checkDelay, []string{"steady"}),
		g.stake(s.owner, other, "on nothing", NoTTL, checkDelay, NoChecks),
	}
	if other != s.owner {
		namesake := grouptest.MustCheck(g.t, g.Nodes[other], "pulse", checkTTL) // another member's
		go func() {
			for namesake.Pass(g.t.Context()) == nil {
				select {
				case <-time.After(checkTTL / 4): // virtual
				case <-g.t.Context().Done():
				}
			}
		}()
		s.apart = append(s.apart, g.stake(other, s.owner, "on a namesake", stakeTTL, checkDelay, []string{"pulse"}))
	}
	s.refresh(s.check.Pass)
	return s
}

// refresh says that all is well, or not quite. The group has heard it at once, so
// that the check's time begins here, to the beat.
func (s *checkScene) refresh(say func(context.Context) error) {
	s.t.Helper()
	s.sent = time.Now()
	grouptest.Must(s.t, say(grouptest.Within(s.t, 5*grouptest.BubbleElection)))
	grouptest.WantBetween(s.t, "the acknowledgement", time.Now(), s.sent, s.sent.Add(grouptest.BubbleHeartbeat))
}

// A check with a TTL becomes critical when it has not been refreshed for so long,
// to the beat; with it end exactly the sessions that depend on it, and what they
// hold is handed on after their lock-delay.
func TestBubbleCheck(t *testing.T) {
	for _, test := range []struct {
		name    string
		members int
		leads   bool // the check's member
		play    func(*checkScene)
	}{
		{"is not refreshed", 3, false, (*checkScene).silent},
		{"is not refreshed by the leader", 3, true, (*checkScene).silent},
		{"is not refreshed, alone", 1, true, (*checkScene).silent},
		{"is refreshed in time", 3, false, (*checkScene).refreshed},
		{"is refreshed in time, alone", 1, true, (*checkScene).refreshed},
		{"is refreshed too late", 3, false, (*checkScene).late},
		{"is registered anew", 3, false, (*checkScene).registered},
		{"while leadership is handed over", 3, false, (*checkScene).handedOver},
		{"while leadership is handed over by its member", 3, true, (*checkScene).handedOver},
		{"while the leader is killed", 3, false, (*checkScene).leaderKilled},
		{"while there is no leader", 3, false, (*checkScene).nobodyLeads},
		{"whose process is killed", 3, false, (*checkScene).ownerKilled},
		{"is deregistered", 3, false, (*checkScene).deregistered},
		{"is deregistered, alone", 1, true, (*checkScene).deregistered},
		{"is said to be critical", 3, false, (*checkScene).failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.members, nil, func(g *grouptest.Group) { test.play(newCheckScene(g, test.leads)) })
		})
	}
}

// wantCritical waits for the end of what depends on the check, and checks when it
// comes and that the check is critical then.
func (s *checkScene) wantCritical(from, to time.Time) {
	s.t.Helper()
	s.wantEnd(from, to)
	_, err := s.Nodes[s.owner].NewSession(grouptest.Within(s.t, grouptest.BubbleElection), &SessionConfig{Checks: []string{"pulse"}})
	grouptest.WantError(s.t, err, ErrCheckCritical)
}

// wantEnd waits for the end of what depends on the check, and checks when it
// comes, what becomes of what was held, and that nothing else ends.
func (s *checkScene) wantEnd(from, to time.Time) {
	s.t.Helper()
	var ended []time.Time
	for _, d := range s.dependent {
		ended = append(ended, d.ended(s.Running()...))
	}
	for i, d := range s.dependent {
		grouptest.WantBetween(s.t, "the end of "+d.name, ended[i], from, to)
		grouptest.WantAt(s.t, "the end of all together", ended[i], ended[0])
		d.handedOn(ended[i])
		if s.Nodes[s.owner] != nil {
			grouptest.WantError(s.t, d.session.Err(), ErrSessionExpired)
		}
	}
	s.wantApart()
}

func (s *checkScene) running() []int {
	return slices.DeleteFunc(allOf(len(s.Nodes)), func(i int) bool { return s.Nodes[i] == nil })
}

// wantApart checks that what does not depend on the check lives.
func (s *checkScene) wantApart() {
	s.t.Helper()
	for _, a := range s.apart {
		a.wantKept(s.Running()...)
		if err := a.session.Err(); err != nil && a.session.node.Err() == nil {
			s.t.Errorf("the process of %q is told %v", a.name, err)
		}
	}
}

// wantAllAlive checks that nothing has ended so far.
func (s *checkScene) wantAllAlive() {
	s.t.Helper()
	for _, d := range s.dependent {
		d.wantAlive(s.Running()...)
	}
	s.wantApart()
}

func (s *checkScene) silent() {
	s.wantCritical(s.sent.Add(checkTTL), s.sent.Add(checkTTL+checkSlack))
}

// Each refreshment begins the time anew, a warning like a pass, however late it
// comes in time.
func (s *checkScene) refreshed() {
	for _, say := range []func(context.Context) error{s.check.Pass, s.check.Warn, s.check.Warn, s.check.Pass} {
		grouptest.Pass(time.Until(s.sent.Add(checkTTL - 10*time.Millisecond)))
		s.refresh(say)
	}
	s.wantAllAlive()
	s.silent()
}

// What has ended stays so. The check itself is as good as new.
func (s *checkScene) late() {
	s.silent()
	s.refresh(s.check.Pass)
	for _, d := range s.dependent {
		if _, alive := grouptest.FindSession(s.t, s.Nodes[s.owner], d.session.ID()); alive {
			s.t.Errorf("%q lives again", d.name)
		}
	}
	s.dependent = []*stake{s.stake(s.owner, s.owner, "new on pulse", stakeTTL, checkDelay, []string{"pulse"})}
	s.silent()
}

// A check that is registered once more goes by its new TTL, and its time begins
// anew.
func (s *checkScene) registered() {
	grouptest.Pass(checkTTL / 2)
	began := time.Now()
	grouptest.MustCheck(s.t, s.Nodes[s.owner], "pulse", 3*checkTTL)
	s.wantCritical(began.Add(3*checkTTL), began.Add(3*checkTTL+checkSlack))
}

// fullTTL checks that the check's time has begun anew with a leader that was
// elected between began and now.
func (s *checkScene) fullTTL(began time.Time) {
	s.t.Helper()
	elected := time.Now()
	s.wantCritical(began.Add(checkTTL), elected.Add(checkTTL+checkSlack))
}

func (s *checkScene) handedOver() {
	grouptest.Pass(checkTTL * 3 / 4)
	began := time.Now()
	grouptest.Must(s.t, s.Nodes[s.Leader(-1)].TransferLeadership(grouptest.Within(s.t, grouptest.BubbleElection), 0))
	s.fullTTL(began)
}

func (s *checkScene) leaderKilled() {
	grouptest.Pass(checkTTL * 3 / 4)
	began := time.Now()
	s.Kill(s.Leader(-1))
	s.Leader(-1)
	s.fullTTL(began)
}

// While nobody leads nobody can refresh.
func (s *checkScene) nobodyLeads() {
	for i := range s.Nodes {
		s.isolate(i, true)
	}
	grouptest.Pass(3 * checkTTL)
	for _, d := range s.dependent {
		if err := d.session.Err(); err != nil {
			s.t.Errorf("%q has ended without a leader: %v", d.name, err)
		}
	}
	began := time.Now()
	for i := range s.Nodes {
		s.isolate(i, false)
	}
	s.Leader(-1)
	s.fullTTL(began)
}

// A check belongs to the member: that its process is gone is nothing to it, but
// that it is refreshed no more.
func (s *checkScene) ownerKilled() {
	s.Kill(s.owner)
	s.wantEnd(s.sent.Add(checkTTL), s.sent.Add(checkTTL+checkSlack))
}

// atOnce does something that ends the check's sessions at once.
func (s *checkScene) atOnce(do func(context.Context) error) {
	s.t.Helper()
	grouptest.Pass(checkTTL / 2)
	began := time.Now()
	grouptest.Must(s.t, do(grouptest.Within(s.t, grouptest.BubbleElection)))
	s.wantEnd(began, began.Add(grouptest.BubbleHeartbeat))
}

func (s *checkScene) deregistered() {
	s.atOnce(s.check.Deregister)
	_, err := s.Nodes[s.owner].NewSession(grouptest.Within(s.t, grouptest.BubbleElection), &SessionConfig{Checks: []string{"pulse"}})
	grouptest.WantError(s.t, err, ErrInvalid)
}

func (s *checkScene) failed() {
	s.atOnce(s.check.Fail)
	s.refresh(s.check.Warn)
	s.dependent = []*stake{s.stake(s.owner, s.owner, "new on pulse", stakeTTL, checkDelay, []string{"pulse"})}
	s.silent()
}
