package conclave

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// rumours is what memberlist says, in the members' logs, of what it thinks of
// other processes and when: it is asked itself, and not what is made of it.
type rumours struct {
	mu    sync.Mutex
	heard []rumour // guarded by mu
}

type rumour struct {
	at   time.Time
	by   string // the member's name
	what string
}

// What memberlist says of a process, or of itself.
const (
	suspected = "memberlist: Suspect %s has failed"
	declared  = "memberlist: Marking %s as failed"
	refuted   = "memberlist: Refuting a suspect message"
)

// ear is a log handler that keeps what memberlist says.
type ear struct {
	slog.Handler
	to *rumours
	by string
}

func (e ear) Enabled(context.Context, slog.Level) bool { return true }

func (e ear) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "memberlist: ") {
		e.to.mu.Lock()
		defer e.to.mu.Unlock()
		e.to.heard = append(e.to.heard, rumour{time.Now(), e.by, r.Message})
	}
	return nil
}

// first finds what a member other than except has said first of a process.
func (r *rumours) first(what, process string, except *Node) (rumour, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(what, "%s") {
		what = fmt.Sprintf(what, process)
	}
	for _, h := range r.heard {
		if strings.Contains(h.what, what) && (except == nil || h.by != except.cfg.Name) {
			return h, true
		}
	}
	return rumour{}, false
}

// hasFrom reports whether a member has said something.
func (r *rumours) hasFrom(n *Node, what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.heard, func(h rumour) bool { return h.by == n.cfg.Name && strings.Contains(h.what, what) })
}

// gossipScene is a group in which one member is going to be in trouble, and what
// its sessions and the others' have.
type gossipScene struct {
	*bubbleGroup
	rumours *rumours
	owner   int
	process string // the owner's, as memberlist calls it
	rest    []int
	stood   *Node    // the owner's node when the scene began
	checked []*stake // the owner's, that depend on the gossip check
	bare    *stake   // the owner's, that depends on nothing
	theirs  []*stake // the others', that depend on their gossip checks
}

const (
	gossipDelay = 4 * time.Second
	// suspicion is how long memberlist waits in a group of three for a process
	// that it suspects: four of its probe intervals.
	suspicion = 2 * time.Second
	// detection is how long memberlist may take besides to suspect a process that
	// does not answer: its turn to be asked comes after three intervals at the
	// latest, and a question lasts one.
	detection = 2 * time.Second
	// hearsay is how long it may take from when one member has declared a process
	// dead until the leader knows: gossip is told to members drawn at random, each
	// 100 ms.
	hearsay = time.Second
	// detectorPatience is how long gossip may take to find the others again after an
	// isolation, before the deaths that it shows count.
	detectorPatience = 30 * time.Second
	// silence is after what time a connection on which nothing comes is down. A
	// death that gossip shows is not believed of who is still heard on his.
	silence = 5 * time.Second
)

func newGossipScene(g *bubbleGroup, r *rumours, leads bool) *gossipScene {
	s := &gossipScene{bubbleGroup: g, rumours: r}
	s.owner = g.leader(-1)
	if !leads {
		s.owner = g.others(s.owner)[0]
	}
	s.rest = g.others(s.owner)
	s.stood = g.nodes[s.owner]
	s.process = fmt.Sprintf("%v.%d", s.stood.id, s.stood.boot)
	a, b := s.rest[0], s.rest[1]
	s.checked = []*stake{
		g.stake(s.owner, a, "default", stakeTTL, gossipDelay, nil),
		g.stake(s.owner, b, "at once", stakeTTL, NoLockDelay, nil),
		g.stake(s.owner, a, "without ttl", NoTTL, gossipDelay, nil),
	}
	s.bare = g.stake(s.owner, b, "bare", stakeTTL, gossipDelay, NoChecks)
	s.theirs = []*stake{
		g.stake(a, b, "first other's", stakeTTL, gossipDelay, nil),
		g.stake(b, a, "second other's", stakeTTL, gossipDelay, nil),
	}
	pass(3*time.Second + 41*time.Millisecond) // gossip settles
	return s
}

// Sessions of a process that is dead, or seems so, end by the gossip check: when
// memberlist has declared it dead and not before, for everybody at one index,
// and long before their TTL. Those of one that is only suspected, or only cut
// off from the leader, live.
func TestBubbleGossip(t *testing.T) {
	for _, test := range []struct {
		name    string
		leads   bool // the member in trouble
		patient bool // the members leave a silent leader ten times as long as usual
		play    func(*gossipScene)
	}{
		{"a process is killed", false, false, (*gossipScene).killed},
		{"the leader's process is killed", true, false, (*gossipScene).killed},
		{"a machine loses power", false, false, (*gossipScene).losesPower},
		{"the leader's machine loses power", true, false, (*gossipScene).losesPower},
		{"a member is cut off", false, false, (*gossipScene).cutOff},
		{"the leader is cut off", true, false, (*gossipScene).cutOff},
		{"a process is started anew at once", false, false, (*gossipScene).startedAnew},
		{"the leader's process is started anew at once", true, false, (*gossipScene).startedAnew},
		{"a member is slow, and suspected", false, false, (*gossipScene).slow},
		{"the leader is slow, and suspected", true, false, (*gossipScene).slow},
		{"a member is cut off from the leader only", false, false, (*gossipScene).cutOffFromLeader},
		{"a member that was cut off brings its rumours back", false, false, (*gossipScene).bringsRumours},
		{"a member that was cut off leads as soon as it is back", false, false, (*gossipScene).leadsAfterwards},
		{"all are cut off from each other", true, false, (*gossipScene).allCutOff},
		{"all are cut off from each other, and one dies", true, false, (*gossipScene).allCutOffAndOneDies},
		{"the leader is cut off and leads on", true, true, (*gossipScene).leadsOn},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := new(rumours)
			inBubble(t, 3, func(c *Config, _ *cluster.Seams) {
				c.Logger = slog.New(ear{slog.DiscardHandler, r, c.Name})
				if test.patient {
					c.ElectionTimeout *= 10
				}
			}, func(g *bubbleGroup) { test.play(newGossipScene(g, r, test.leads)) })
		})
	}
}

// ends checks the end of the owner's sessions, who is dead or seems so since that
// time.
func (s *gossipScene) ends(since time.Time) {
	s.t.Helper()
	led := s.ledSince(since)
	var ended []time.Time
	for _, c := range s.checked {
		ended = append(ended, c.ended(s.rest...))
	}
	d, ok := s.rumours.first(declared, s.process, s.stood)
	if !ok {
		s.t.Fatalf("the sessions have ended, and memberlist has not declared %s dead", s.process)
	}
	wantBetween(s.t, "memberlist's word", d.at, since.Add(suspicion), since.Add(detection+suspicion))
	latest := d.at.Add(hearsay)
	if down := since.Add(silence); down.After(d.at) {
		latest = down.Add(hearsay)
	}
	if at := <-led; at.After(d.at) {
		latest = at.Add(hearsay)
	}
	for i, c := range s.checked {
		wantBetween(s.t, "the end of "+c.name, ended[i], d.at, latest)
		wantAt(s.t, "the end of all together", ended[i], ended[0])
		c.handedOn(ended[i])
	}
	s.bare.wantKept(s.rest...)
	s.theirsLive()
}

// ledSince tells when the others have a leader among themselves.
func (s *gossipScene) ledSince(since time.Time) <-chan time.Time {
	led := make(chan time.Time, 1)
	if s.owner >= 0 && s.followed(s.owner) >= 0 {
		led <- since
		return led
	}
	go func() {
		if s.awaitLeader(s.owner) < 0 {
			s.t.Error("the others have no leader in a minute")
		}
		led <- time.Now()
	}()
	return led
}

// theirsLive checks that the others lose nothing, also in the time to come.
func (s *gossipScene) theirsLive() {
	s.t.Helper()
	pass(30 * time.Second)
	for _, other := range s.theirs {
		other.wantAlive(s.rest...)
	}
}

// backAgain checks that the owner's process can have sessions that depend on
// gossip as soon as it has been heard of again, that they last, and that the
// others have lost nothing.
func (s *gossipScene) backAgain(soon time.Duration) {
	s.t.Helper()
	began := time.Now()
	cfg := &SessionConfig{TTL: stakeTTL}
	again, err := s.nodes[s.owner].NewSession(within(s.t, time.Minute), cfg)
	for err != nil && time.Since(began) < soon {
		wantError(s.t, err, ErrCheckCritical)
		pass(bubbleBeat)
		again, err = s.nodes[s.owner].NewSession(within(s.t, time.Minute), cfg)
	}
	if err != nil {
		s.t.Fatalf("%v after it is back: %v", time.Since(began), err)
	}
	s.theirsLive()
	if err := again.Err(); err != nil {
		s.t.Error(err)
	}
}

func (s *gossipScene) killed() {
	since := time.Now()
	s.kill(s.owner)
	s.ends(since)
	s.startAll(s.owner)
	s.backAgain(0)
}

func (s *gossipScene) losesPower() {
	since := time.Now()
	s.crash(s.owner)
	s.ends(since)
	s.net.forget(s.owner)
	s.isolate(s.owner, false)
	s.startAll(s.owner)
	s.backAgain(0)
}

// A process that is cut off is told as soon as it hears of the group again. Until
// then it goes by its TTL.
func (s *gossipScene) cutOff() {
	since := time.Now()
	s.isolate(s.owner, true)
	s.ends(since)
	for _, c := range s.checked {
		if err := c.session.Err(); err != nil {
			s.t.Errorf("%q is cut off and has heard: %v", c.name, err)
		}
	}
	mended := time.Now()
	s.isolate(s.owner, false)
	for _, c := range s.checked {
		<-c.session.Done()
		wantError(s.t, c.session.Err(), ErrSessionExpired)
		wantBetween(s.t, "the news of the end", time.Now(), mended, mended.Add(5*time.Second))
	}
	s.backAgain(10 * time.Second)
	s.bare.wantAlive(allOf(3)...)
}

// That the process before is declared dead, later, is nothing to the one after.
func (s *gossipScene) startedAnew() {
	s.kill(s.owner)
	s.startAll(s.owner)
	if _, ok := s.rumours.first(declared, s.process, nil); ok {
		s.t.Fatal("it was declared dead before it was started anew")
	}
	s.backAgain(0)
	if _, ok := s.rumours.first(declared, s.process, nil); !ok {
		s.t.Error("the process before has not been declared dead")
	}
}

// slow cuts the owner off until it is suspected, and then for nearly as long as
// memberlist waits.
func (s *gossipScene) slow() {
	s.isolate(s.owner, true)
	for heard := false; !heard; _, heard = s.rumours.first(suspected, s.process, s.stood) {
		pass(10 * time.Millisecond)
	}
	pass(suspicion * 3 / 5)
	s.isolate(s.owner, false)
	pass(time.Minute)
	if d, ok := s.rumours.first(declared, s.process, s.stood); ok {
		s.t.Fatalf("it was declared dead, by %s", d.by)
	}
	if _, ok := s.rumours.first(refuted, "", nil); !ok {
		s.t.Fatal("nobody has refuted a suspicion")
	}
	s.allLive()
}

func (s *gossipScene) cutOffFromLeader() {
	s.net.set(s.owner, s.leader(-1), true)
	pass(time.Minute)
	s.net.set(s.owner, s.leader(s.owner), false)
	pass(time.Minute)
	s.allLive()
}

// A member that was cut off has seen all others die. When it comes to lead before
// its gossip has heard of them again, they lose nothing by it.
func (s *gossipScene) leadsAfterwards() {
	since := time.Now()
	s.isolate(s.owner, true)
	s.ends(since)
	s.wantAllDeclared(s.owner)
	s.isolate(s.owner, false)
	for s.leader(-1) != s.owner {
		_ = s.nodes[s.leader(-1)].TransferLeadership(within(s.t, bubbleElection), s.stood.id) // it has to have caught up
	}
	s.theirsLive()
}

// A member that was cut off has seen all others die, and says so when it is back.
// Those who hear it of a third believe it until that one refutes it, and the third
// must not lose anything by it.
func (s *gossipScene) bringsRumours() {
	other := s.nodes[s.others(s.owner)[0]]
	dead := fmt.Sprintf(declared, fmt.Sprintf("%v.%d", other.id, other.boot))
	s.isolate(s.owner, true)
	for !s.rumours.hasFrom(s.nodes[s.owner], dead) {
		pass(10 * time.Millisecond)
	}
	s.isolate(s.owner, false)
	pass(time.Minute)
	s.theirsLive()
}

// When the whole network is gone for a while everybody sees everybody die, and
// whoever leads then has to see first who has. Whether raft or gossip is the
// first to find the others again is a matter of chance, so it is gone several
// times.
func (s *gossipScene) allCutOff() {
	for range 5 {
		for i := range s.nodes {
			s.isolate(i, true)
		}
		pass(10 * time.Second)
		for i := range s.nodes {
			s.wantAllDeclared(i)
		}
		for i := range s.nodes {
			s.isolate(i, false)
		}
		pass(10 * time.Second)
		s.allLive()
	}
}

// Who has died meanwhile is found out all the same, when gossip has had the time
// to find the others.
func (s *gossipScene) allCutOffAndOneDies() {
	for i := range s.nodes {
		s.isolate(i, true)
	}
	pass(10 * time.Second)
	s.kill(s.owner)
	mended := time.Now()
	s.net.set(s.rest[0], s.rest[1], false)
	for _, c := range s.checked {
		ended := c.ended(s.rest...)
		wantBetween(s.t, "the end of "+c.name, ended, mended, mended.Add(detectorPatience+5*time.Second))
		c.handedOn(ended)
	}
	s.bare.wantKept(s.rest...)
	s.theirsLive()
}

// It is the same without a change of the leader: it is cut off for less than an
// election takes, and no connection counts as broken yet.
func (s *gossipScene) leadsOn() {
	term := s.stood.Status().Term
	s.isolate(s.owner, true)
	pass(detection + suspicion + 600*time.Millisecond)
	s.wantAllDeclared(s.owner)
	s.isolate(s.owner, false)
	pass(time.Minute)
	if now := s.stood.Status(); now.Leader != s.stood.id || now.Term != term {
		s.t.Fatalf("%v leads in term %d, and %v did in term %d", now.Leader, now.Term, s.stood.id, term)
	}
	s.allLive()
}

// wantAllDeclared checks that a member has declared all others dead.
func (s *gossipScene) wantAllDeclared(by int) {
	s.t.Helper()
	for _, i := range s.others(by) {
		n := s.nodes[i]
		if !s.rumours.hasFrom(s.nodes[by], fmt.Sprintf(declared, fmt.Sprintf("%v.%d", n.id, n.boot))) {
			s.t.Fatalf("member %d has not declared member %d dead", by, i)
		}
	}
}

func (s *gossipScene) allLive() {
	s.t.Helper()
	for _, c := range append(append(s.checked, s.bare), s.theirs...) {
		c.wantAlive(allOf(3)...)
	}
}
