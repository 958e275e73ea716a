package virtualtime

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// crashScene is a group of three in which one member, the victim, crashes or seems to.
type crashScene struct {
	*grouptest.Group
	victim      int
	id          conclave.MemberID // the victim's
	rest        []int
	dependent   []*probe // of the victim, on its check process
	independent *probe   // of the victim, without checks
	other       *probe   // of another member, on that one's check process
}

// crashDetection is how long it may take until a crash is recorded: another leader is elected, the victim is dialed, and the
// voters' evidence reaches the leader.
const crashDetection = time.Second

func newCrashScene(g *grouptest.Group, leads bool) *crashScene {
	s := &crashScene{Group: g, victim: g.Leader()}
	if !leads {
		s.victim = g.Others(s.victim)[0]
	}
	s.id, s.rest = g.ID(s.victim), g.Others(s.victim)
	on := []string{conclave.ProcessCheck}
	s.dependent = []*probe{
		newProbe(g, s.victim, s.rest[0], "lock-delay", longTTL, time.Second, on),
		newProbe(g, s.victim, s.rest[1], "no lock-delay", longTTL, conclave.NoLockDelay, on),
		newProbe(g, s.victim, s.rest[0], "no TTL", conclave.NoTTL, conclave.NoLockDelay, on),
	}
	s.independent = newProbe(g, s.victim, s.rest[1], "no checks", longTTL, conclave.NoLockDelay, []string{})
	s.other = newProbe(g, s.rest[0], s.rest[1], "of another member", longTTL, conclave.NoLockDelay, on)
	pass(3*time.Second + 41*time.Millisecond) // all are connected
	return s
}

// wantEnd checks that the dependent sessions end soon after that time, and no others.
func (s *crashScene) wantEnd(since time.Time) {
	s.T.Helper()
	for _, p := range s.dependent {
		ended := p.awaitEnd(s.rest...)
		wantBetween(s.T, "the end of "+p.name, ended, since, since.Add(crashDetection))
		p.wantGranted(ended)
	}
	s.independent.wantInGroup(s.rest...)
	s.other.wantAlive(s.rest...)
}

// wantAlive checks that all sessions live on, as far as members know.
func (s *crashScene) wantAlive(members ...int) {
	s.T.Helper()
	for _, p := range append(s.dependent, s.independent, s.other) {
		p.wantInGroup(members...)
	}
}

// state returns the state of the victim's check process, as another member has it.
func (s *crashScene) state() conclave.CheckState {
	s.T.Helper()
	checks, err := grouptest.Collect(s.Nodes[s.rest[0]].Checks(s.T.Context()))
	grouptest.Must(s.T, err)
	for _, c := range checks {
		if c.Node == s.id && c.Name == conclave.ProcessCheck {
			return c.State
		}
	}
	s.T.Fatalf("no check of the victim in %v", checks)
	return 0
}

// Sessions on the check process end when their process has crashed, at one index for all members and long before their TTL;
// those of a process that is partitioned, whose connections break, or that stops in order do not.
func TestProcessCheck(t *testing.T) {
	for i, test := range []struct {
		name string
		run  func(*crashScene)
	}{
		{"killed", (*crashScene).killed},
		{"isolated", (*crashScene).isolated},
		{"connections reset", (*crashScene).reset},
		{"loses power", (*crashScene).losesPower},
		{"closed", (*crashScene).closed},
		{"killed, seen by a minority", (*crashScene).killedUnseen},
		{"taken for crashed", (*crashScene).refused},
	} {
		for j, role := range []string{"follower", "leader"} {
			if testing.Short() && i%2 != j {
				continue
			}
			t.Run(test.name+"/"+role, func(t *testing.T) {
				t.Parallel()
				grouptest.InBubble(t, 3, func(g *grouptest.Group) { test.run(newCrashScene(g, role == "leader")) })
			})
		}
	}
}

func (s *crashScene) killed() {
	at := time.Now()
	s.Kill(s.victim)
	s.wantEnd(at)
	if state := s.state(); state != conclave.CheckCritical {
		s.T.Errorf("the check is %v", state)
	}
	s.Start(s.victim)
	if state := s.state(); state != conclave.CheckPassing {
		s.T.Errorf("the check is %v when another process has started", state)
	}
	grouptest.MustSession(s.T, s.Nodes[s.victim], &conclave.SessionConfig{Checks: []string{conclave.ProcessCheck}})
}

// isolated: its connections time out, and nothing is refused.
func (s *crashScene) isolated() {
	s.Net.Isolate(s.victim)
	pass(30 * time.Second)
	s.wantAlive(s.rest...)
	s.Net.Rejoin(s.victim)
	pass(10 * time.Second)
	for _, p := range s.dependent[:2] { // the third ends with the registration
		p.wantAlive(s.All()...)
	}
}

// reset: it is dialed again, and accepts.
func (s *crashScene) reset() {
	s.Net.Reset(s.victim)
	pass(30 * time.Second)
	for _, p := range s.dependent {
		p.wantAlive(s.All()...)
	}
}

// losesPower: what the machine had sent is lost, and it answers nothing.
func (s *crashScene) losesPower() {
	s.Net.Isolate(s.victim)
	s.Kill(s.victim)
	pass(30 * time.Second)
	s.wantAlive(s.rest...)
}

// closed: only what has no TTL outlives the process, as it is meant to.
func (s *crashScene) closed() {
	s.Close(s.victim)
	pass(30 * time.Second)
	s.dependent[2].wantInGroup(s.rest...)
	if state := s.state(); state != conclave.CheckPassing {
		s.T.Errorf("the check is %v after a graceful shutdown", state)
	}
}

// killedUnseen: the connections of one of the others have timed out before.
func (s *crashScene) killedUnseen() {
	s.Net.Partition(s.victim, s.rest[1])
	pass(10 * time.Second)
	s.Kill(s.victim)
	s.Net.Heal(s.victim, s.rest[1])
	pass(30 * time.Second)
	s.wantAlive(s.rest...)
}

// refused: what stands between the process and the others resets and refuses, so the voters are wrong. The process loses its
// sessions by that, and not earlier, and may open others when it is connected again.
func (s *crashScene) refused() {
	at := time.Now()
	s.Net.Refuse(s.victim)
	s.wantEnd(at)
	for _, p := range s.dependent {
		if err := p.session.Err(); err != nil {
			s.T.Errorf("%q has ended in its process, which has not heard of it: %v", p.name, err)
		}
	}
	s.Net.Accept(s.victim)
	pass(10 * time.Second)
	for _, p := range s.dependent {
		grouptest.WantError(s.T, p.session.Err(), conclave.ErrSessionExpired)
	}
	if state := s.state(); state != conclave.CheckPassing {
		s.T.Errorf("the check is %v when the process is connected", state)
	}
	grouptest.MustSession(s.T, s.Nodes[s.victim], &conclave.SessionConfig{Checks: []string{conclave.ProcessCheck}})
}

// Below its feature level there is no check process: a session that asks for it is refused, and the node's own session, which
// depends on it by the configuration, is opened without it. In the upgraded group it has its effect.
func TestUpgrade_ProcessCheck(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		on := &conclave.SessionConfig{Checks: []string{conclave.ProcessCheck}}
		_, err := g.Nodes[0].NewSession(g.T.Context(), on)
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		_, err = g.Nodes[0].CreateSession(g.T.Context(), on)
		grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired)
		grouptest.MustLock(g.T, g.Nodes[1].FencedLock("x"))
		g.Kill(1)
		pass(5 * time.Second)
		waiting := grouptest.StartLock(g.T, g.Nodes[0].FencedLock("x"))
		select {
		case err := <-waiting.Err:
			g.T.Errorf("granted before the TTL: %v", err)
		default:
		}
		g.Start(1)
		grouptest.Must(g.T, <-waiting.Err)

		for _, i := range g.All() {
			g.Kill(i)
			g.Seams[i].FeatureLevel = wire.LevelProcess
			g.Start(i)
		}
		pass(time.Minute) // the leader raises the level
		wantLevel(g, 0, wire.LevelProcess)
		grouptest.MustSession(g.T, g.Nodes[0], on)
		grouptest.MustLock(g.T, g.Nodes[1].FencedLock("x"))
		at := time.Now()
		g.Kill(1)
		grouptest.MustLock(g.T, g.Nodes[2].FencedLock("x"))
		wantBetween(g.T, "the grant", time.Now(), at, at.Add(crashDetection))
	}, grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.SessionTTL, c.SessionChecks, s.FeatureLevel = longTTL, []string{conclave.ProcessCheck}, wire.LevelBounds
	}))
}
