package virtualtime

import (
	"log/slog"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// detection is a group of three in which one member, the victim, fails or seems to.
type detection struct {
	*grouptest.Group
	log         *gossipLog
	victim      int
	node        *conclave.Node // the victim's, before the failure
	process     string         // the victim's, as memberlist calls it
	rest        []int
	dependent   []*probe // of the victim, on its gossip check
	independent *probe   // of the victim, without checks
	others      []*probe // of the others, on their gossip checks
}

const (
	// gossipDelay keeps the holders' own deadlines out of the scenes in which all are
	// isolated: see early_loss_test.go.
	gossipDelay = time.Minute
	// suspicionTime is how long memberlist waits in a group of three for a process
	// that it suspects: four of its probe intervals.
	suspicionTime = 2 * time.Second
	// probeTime is how long memberlist may take to suspect a process that does not
	// answer: it is probed within three intervals, and a probe lasts one.
	probeTime = 2 * time.Second
	// disseminationTime is how long the leader may take to learn that one member has
	// declared a process dead: gossip goes to random members every 100 ms.
	disseminationTime = time.Second
	// linkTimeout is how long nothing may arrive on a connection until it counts as
	// broken. The failure detector does not trust gossip against a working link.
	linkTimeout = 5 * time.Second
	// minSilence is how long after a process's last renewal it is not declared dead.
	minSilence = 5 * time.Second
	// gossipPatience is how long a leader gives gossip to show a process after it
	// has regained a quorum.
	gossipPatience = 30 * time.Second
)

// Sessions on the gossip check end when memberlist has declared their process dead,
// not before, at one index for all members, and long before their TTL. Sessions of a
// process that is only suspected, or partitioned from the leader only, stay alive.
func TestFailureDetector(t *testing.T) {
	skipIfShort(t)
	for _, test := range []struct {
		name    string
		leads   bool // the victim
		patient bool // the members wait ten times as long for a silent leader
		run     func(*detection)
	}{
		{"process killed", false, false, (*detection).killed},
		{"leader killed", true, false, (*detection).killed},
		{"power loss", false, false, (*detection).losesPower},
		{"power loss of the leader", true, false, (*detection).losesPower},
		{"member isolated", false, false, (*detection).isolated},
		{"leader isolated", true, false, (*detection).isolated},
		{"process restarted at once", false, false, (*detection).restarted},
		{"leader restarted at once", true, false, (*detection).restarted},
		{"member suspected, refutes", false, false, (*detection).refutes},
		{"leader suspected, refutes", true, false, (*detection).refutes},
		{"member partitioned from the leader only", false, false, (*detection).partitionedFromLeader},
		{"rejoining member spreads false deaths", false, false, (*detection).spreadsFalseDeaths},
		{"rejoining member leads at once", false, false, (*detection).leadsAfterRejoining},
		{"all isolated", true, false, (*detection).allIsolated},
		{"all isolated, one killed", true, false, (*detection).allIsolatedOneKilled},
		{"leader isolated, keeps leading", true, true, (*detection).keepsLeading},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log := new(gossipLog)
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				test.run(newDetection(g, log, test.leads))
			}, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
				c.Logger = slog.New(gossipHandler{slog.DiscardHandler, log, c.Name})
				if test.patient {
					c.ElectionTimeout *= 10
				}
			}))
		})
	}
}

func newDetection(g *grouptest.Group, log *gossipLog, leads bool) *detection {
	d := &detection{Group: g, log: log}
	d.victim = g.Leader()
	if !leads {
		d.victim = g.Others(d.victim)[0]
	}
	d.rest = g.Others(d.victim)
	d.node, d.process = g.Nodes[d.victim], g.ProcessName(d.victim)
	v, a, b := d.victim, d.rest[0], d.rest[1]
	d.dependent = []*probe{
		newProbe(g, v, a, "default", longTTL, gossipDelay, nil),
		newProbe(g, v, b, "short lock-delay", longTTL, gossipDelay/2, nil),
		newProbe(g, v, a, "no TTL", conclave.NoTTL, gossipDelay, nil),
	}
	d.independent = newProbe(g, v, b, "no checks", longTTL, gossipDelay, []string{})
	d.others = []*probe{
		newProbe(g, a, b, "of one other", longTTL, gossipDelay, nil),
		newProbe(g, b, a, "of another", longTTL, gossipDelay, nil),
	}
	pass(3*time.Second + 41*time.Millisecond) // gossip settles
	return d
}

func (d *detection) name(i int) string { return d.Configs[i].Name }

// wantEnd checks when the victim's sessions end, which has failed, or seems to have,
// since that time.
func (d *detection) wantEnd(since time.Time) {
	d.T.Helper()
	led := d.leaderSince(since)
	var ended []time.Time
	for _, p := range d.dependent {
		ended = append(ended, p.awaitEnd(d.rest...))
	}
	dead, ok := d.log.declaredDead(d.process, d.name(d.victim))
	if !ok {
		d.T.Fatalf("the sessions have ended, and memberlist has not declared %s dead", d.process)
	}
	wantBetween(d.T, "the declaration of death", dead.at, since.Add(suspicionTime), since.Add(probeTime+suspicionTime))
	latest := dead.at.Add(disseminationTime)
	if broken := since.Add(max(linkTimeout, minSilence)); broken.After(dead.at) {
		latest = broken.Add(disseminationTime)
	}
	if at := <-led; at.After(since) { // a new leader renews all
		latest = at.Add(minSilence + disseminationTime)
	}
	for i, p := range d.dependent {
		wantBetween(d.T, "the end of "+p.name, ended[i], dead.at, latest)
		wantAt(d.T, "the end of all sessions", ended[i], ended[0])
		p.wantGranted(ended[i])
	}
	d.independent.wantInGroup(d.rest...)
	d.wantOthersAlive()
}

// leaderSince gets the time from which the others have a leader among themselves.
func (d *detection) leaderSince(since time.Time) <-chan time.Time {
	led := make(chan time.Time, 1)
	if _, ok := d.FollowedLeader(d.victim); ok {
		led <- since
		return led
	}
	go func() {
		if _, ok := d.AwaitLeader(d.victim); !ok {
			d.T.Error("the others have no leader")
		}
		led <- time.Now()
	}()
	return led
}

// wantOthersAlive checks that the others lose nothing for some time.
func (d *detection) wantOthersAlive() {
	d.T.Helper()
	pass(30 * time.Second)
	for _, p := range d.others {
		p.wantAlive(d.rest...)
	}
}

func (d *detection) wantAllAlive() {
	d.T.Helper()
	for _, p := range append(append(d.dependent, d.independent), d.others...) {
		p.wantAlive(d.All()...)
	}
}

// wantUsable checks that the victim can open sessions on its gossip check within
// that time, that they last, and that the others have lost nothing.
func (d *detection) wantUsable(within time.Duration) {
	d.T.Helper()
	began := time.Now()
	cfg := &conclave.SessionConfig{TTL: longTTL}
	s, err := d.Nodes[d.victim].NewSession(grouptest.Within(d.T, time.Minute), cfg)
	for err != nil && time.Since(began) < within {
		grouptest.WantError(d.T, err, conclave.ErrCheckCritical)
		pass(heartbeat)
		s, err = d.Nodes[d.victim].NewSession(grouptest.Within(d.T, time.Minute), cfg)
	}
	if err != nil {
		d.T.Fatalf("%v after the member is back: %v", time.Since(began), err)
	}
	d.wantOthersAlive()
	grouptest.Must(d.T, s.Err())
}

// wantAllDeclaredDead checks that a member has declared all others dead.
func (d *detection) wantAllDeclaredDead(by int) {
	d.T.Helper()
	for _, i := range d.Others(by) {
		if !d.log.hasDeclaredDead(d.name(by), d.ProcessName(i)) {
			d.T.Fatalf("member %d has not declared member %d dead", by, i)
		}
	}
}

func (d *detection) killed() {
	since := time.Now()
	d.Kill(d.victim)
	d.wantEnd(since)
	d.Start(d.victim)
	d.wantUsable(0)
}

func (d *detection) losesPower() {
	since := time.Now()
	d.Crash(d.victim)
	d.wantEnd(since)
	d.Restart(d.victim)
	d.wantUsable(0)
}

// An isolated process knows by itself, before another owner is granted anything, that
// its sessions can have ended.
func (d *detection) isolated() {
	lost := make(chan time.Time, len(d.dependent))
	for _, p := range d.dependent {
		go func() { <-p.session.Done(); lost <- time.Now() }()
	}
	since := time.Now()
	d.Net.Isolate(d.victim)
	d.wantEnd(since)
	for range d.dependent {
		wantBetween(d.T, "the loss", <-lost, since, since.Add(minSilence+gossipDelay))
	}
	for _, p := range d.dependent {
		grouptest.WantError(d.T, p.session.Err(), conclave.ErrSessionExpired)
	}
	d.Net.Rejoin(d.victim)
	d.wantUsable(10 * time.Second)
	d.independent.wantAlive(d.All()...)
}

// That the earlier process is declared dead later does not concern the present one.
func (d *detection) restarted() {
	earlier := d.process
	d.Kill(d.victim)
	d.Start(d.victim)
	if _, ok := d.log.declaredDead(earlier, ""); ok {
		d.T.Fatal("it was declared dead before it was restarted")
	}
	d.wantUsable(0)
	if _, ok := d.log.declaredDead(earlier, ""); !ok {
		d.T.Error("the earlier process has not been declared dead")
	}
}

// refutes isolates the victim until it is suspected, and for most of the time that
// it then has to refute.
func (d *detection) refutes() {
	d.Net.Isolate(d.victim)
	for suspected := false; !suspected; _, suspected = d.log.suspected(d.process, d.name(d.victim)) {
		pass(10 * time.Millisecond)
	}
	pass(suspicionTime * 3 / 5)
	d.Net.Rejoin(d.victim)
	pass(time.Minute)
	if dead, ok := d.log.declaredDead(d.process, d.name(d.victim)); ok {
		d.T.Fatalf("declared dead by %s", dead.by)
	}
	if !d.log.refuted() {
		d.T.Fatal("no process has refuted a suspicion")
	}
	d.wantAllAlive()
}

func (d *detection) partitionedFromLeader() {
	d.Net.Partition(d.victim, d.Leader())
	pass(20 * time.Second) // no renewal reaches the leader
	d.Net.Rejoin(d.victim)
	pass(time.Minute)
	d.wantAllAlive()
}

// An isolated member has seen all others die. When it leads before its gossip has
// met them again, they lose nothing.
func (d *detection) leadsAfterRejoining() {
	since := time.Now()
	d.Net.Isolate(d.victim)
	d.wantEnd(since)
	d.wantAllDeclaredDead(d.victim)
	d.Net.Rejoin(d.victim)
	for leader := d.Leader(); leader != d.victim; leader = d.Leader() {
		_ = d.Nodes[leader].TransferLeadership(grouptest.Within(d.T, election), d.ID(d.victim)) // fails until it has caught up
	}
	d.wantOthersAlive()
}

// An isolated member has seen all others die and spreads that when it is back. A
// member believes it of a third one until that one refutes it, and the third one
// loses nothing.
func (d *detection) spreadsFalseDeaths() {
	other := d.ProcessName(d.rest[0])
	d.Net.Isolate(d.victim)
	for !d.log.hasDeclaredDead(d.name(d.victim), other) {
		pass(10 * time.Millisecond)
	}
	d.Net.Rejoin(d.victim)
	pass(time.Minute)
	d.wantOthersAlive()
}

// When the whole network fails, every member sees all others die, and the next
// leader must first find out which have. Whether raft or gossip finds the others
// first is random, so it fails several times.
func (d *detection) allIsolated() {
	for range 5 {
		for _, i := range d.All() {
			d.Net.Isolate(i)
		}
		pass(10 * time.Second)
		for _, i := range d.All() {
			d.wantAllDeclaredDead(i)
		}
		for _, i := range d.All() {
			d.Net.Rejoin(i)
		}
		pass(10 * time.Second)
		d.wantAllAlive()
	}
}

// A process that died meanwhile is found dead when gossip has had the time to find
// the others.
func (d *detection) allIsolatedOneKilled() {
	for _, i := range d.All() {
		d.Net.Isolate(i)
	}
	pass(10 * time.Second)
	d.Kill(d.victim)
	healed := time.Now()
	d.Net.Heal(d.rest[0], d.rest[1])
	for _, p := range d.dependent {
		ended := p.awaitEnd(d.rest...)
		wantBetween(d.T, "the end of "+p.name, ended, healed, healed.Add(gossipPatience+5*time.Second))
		p.wantGranted(ended)
	}
	d.independent.wantInGroup(d.rest...)
	d.wantOthersAlive()
}

// The same without a change of leader: the leader is isolated for less than an
// election takes, and no connection counts as broken yet.
func (d *detection) keepsLeading() {
	term := d.node.Status().Term
	d.Net.Isolate(d.victim)
	pass(probeTime + suspicionTime + 600*time.Millisecond)
	d.wantAllDeclaredDead(d.victim)
	d.Net.Rejoin(d.victim)
	pass(time.Minute)
	if now := d.node.Status(); now.Leader != now.ID || now.Term != term {
		d.T.Fatalf("%v leads in term %d; want %v in term %d", now.Leader, now.Term, now.ID, term)
	}
	d.wantAllAlive()
}
