package grouptest

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// byLevel is what depends on the feature level, by the name of the level's constant in package wire:
// each row is the first call to a new group.
var byLevel = map[string]map[string]func(g *Group){
	"LevelLinger":     {"lingering": firstLingers},
	"LevelLabel":      {"label and since": firstHasLabel, "explain": firstIsExplained},
	"LevelTrace":      {"trace": firstHasCause},
	"LevelClient":     {"client": firstByClient},
	"LevelStandalone": {"standalone session": firstStandalone},
	"LevelBounds":     {"key of an ended client": firstReusesKey},
	"LevelProcess":    {"check process": firstIsChecked},
	"LevelSlots":      {"numbers of permits": firstHasSlots},
	"LevelShared":     {"share": firstShares},
	"LevelDeadlock":   {"refused wait": firstIsRefused},
	"LevelMaxHold":    {"end of a hold": firstEnds},
	"LevelSets":       {"set": firstTakesSet},
	"LevelJobs":       {"job": firstRunsJob},
	"LevelShards":     {"shards": firstWorksOnShards},
	"LevelReserve":    {"reservation that would close a cycle": firstIsNotReserved},
	"LevelDeleteJob":  {"deletion of a job": firstDeletesJob},
	"LevelGroups":     {"further group": firstLocksElsewhere},
	"LevelTogether":   {"end of several sessions": firstHasLevel},
	"LevelClaim":      {"claim of more than the limit": firstClaims},
	"LevelPrefixes":   {"prefixes of one entry": firstHasLevel},
	"LevelShorter":    {"shorter value": firstHasLevel},
	"LevelApart":      {"searches of clients": firstHasLevel},
}

// A new group has everything that its founders support from the first call on.
func TestFirstCall_HasAllFeatures(t *testing.T) {
	t.Parallel()
	for _, level := range slices.Sorted(maps.Keys(byLevel)) {
		for name, first := range byLevel[level] {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/%s/%d", level, name, n), func(t *testing.T) {
					t.Parallel()
					first(Start(t, n, Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) { c.Tracer = new(causes) })))
				})
			}
		}
	}
}

// Each feature level has a row above.
func TestFirstCall_ListsEachLevel(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../wire/wire.go", nil, 0)
	Must(t, err)
	levels := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Level") {
			if levels++; len(byLevel[v.Names[0].Name]) == 0 {
				t.Errorf("no test shows what %s brings to a new group", v.Names[0].Name)
			}
		}
		return true
	})
	if levels != len(byLevel) {
		t.Errorf("%d levels, and rows for %d", levels, len(byLevel))
	}
}

func (g *Group) last() *conclave.Node { return g.Nodes[len(g.Nodes)-1] }

func firstLingers(g *Group) {
	l := g.Nodes[0].FencedLock("x", conclave.Linger(time.Minute))
	MustLock(g.T, l)
	MustUnlock(g.T, l)
	info, err := l.Info(Bounded(g.T))
	if err != nil || !info.Held || !info.Lingering {
		g.T.Errorf("after the first release the lock is %+v, %v", info, err)
	}
}

func firstHasLabel(g *Group) {
	MustLock(g.T, g.Nodes[0].FencedLock("x", conclave.WithLabel("run 1")))
	info, err := g.last().FencedLock("x").Info(Bounded(g.T))
	if err != nil || info.Label != "run 1" || info.Since < 0 {
		g.T.Errorf("%+v, %v", info, err)
	}
}

func firstIsExplained(g *Group) {
	MustLock(g.T, g.Nodes[0].FencedLock("x", conclave.WithLabel("run 1")))
	e, err := g.last().Explain(Bounded(g.T), "x")
	if err != nil || e.Holder.Label != "run 1" || e.Holder.Since < 0 {
		g.T.Errorf("%+v, %v", e, err)
	}
}

func firstEnds(g *Group) {
	l := g.last().FencedLock("x", conclave.MaxHold(time.Hour))
	MustLock(g.T, l)
	Must(g.T, l.Extend(Bounded(g.T), time.Minute))
	info, err := l.Info(Bounded(g.T))
	if err != nil || info.EndsIn <= 0 || info.EndsIn > time.Minute {
		g.T.Errorf("%+v, %v", info, err)
	}
}

func firstTakesSet(g *Group) {
	ctx := Bounded(g.T)
	set := g.last().LockSet([]string{"x"}, conclave.Shared("y"))
	_, err := set.Lock(ctx)
	Must(g.T, err)
	info, err := g.Nodes[0].FencedLock("x").Info(ctx)
	if err != nil || info.Set != 2 {
		g.T.Errorf("%+v, %v", info, err)
	}
}

func firstRunsJob(g *Group) {
	ctx := Bounded(g.T)
	Must(g.T, g.last().Job("x").Once(ctx, "a", func(context.Context, conclave.Fence) error { return nil }))
	info, err := g.Nodes[0].Job("x").Info(ctx)
	if err != nil || len(info.Runs) != 1 || info.Runs[0].Result != conclave.JobDone {
		g.T.Errorf("%+v, %v", info, err)
	}
}

// firstIsNotReserved: the node waits for x behind a set that waits for y, which the node has.
func firstIsNotReserved(g *Group) {
	ctx, cancel := context.WithCancel(Bounded(g.T))
	a, b := g.Nodes[0], MustSession(g.T, g.last(), Lasting())
	ay, ax, bx, bz := a.FencedLock("y"), a.FencedLock("x"), b.FencedLock("x"), b.FencedLock("z")
	MustLock(g.T, ay)
	MustLock(g.T, bx)
	ended := make(chan error, 1)
	go func() {
		_, err := MustSession(g.T, g.last(), Lasting()).LockSet([]string{"x", "y", "z"}, conclave.RefuseDeadlock()).Lock(ctx)
		ended <- err
	}()
	AwaitWaiters(g.T, bx, 1)
	got := make(chan error, 1)
	go func() {
		_, err := ax.Lock(ctx)
		got <- err
	}()
	AwaitWaiters(g.T, bx, 2)
	for range 4 {
		MustLock(g.T, bz)
		MustUnlock(g.T, bz)
	}
	MustUnlock(g.T, bx)
	Must(g.T, <-got)
	cancel()
	<-ended
}

func firstDeletesJob(g *Group) {
	ctx, once := Bounded(g.T), func(context.Context, conclave.Fence) error { return nil }
	Must(g.T, g.last().Job("x").Once(ctx, "a", once))
	Must(g.T, g.Nodes[0].Job("x").Delete(ctx))
	Must(g.T, g.last().Job("x").Once(ctx, "a", once))
}

func firstLocksElsewhere(g *Group) {
	_, err := g.Nodes[0].CreateGroup(Bounded(g.T), "further", conclave.GroupConfig{})
	Must(g.T, err)
	MustLock(g.T, g.last().WithGroup("further").FencedLock("x"))
}

// firstHasLevel looks at the level alone: no call ends the sessions of several members at once, or fills an entry or the state.
func firstHasLevel(g *Group) {
	if level := g.Member(len(g.Nodes) - 1).Replica().Level(); level < wire.FeatureLevel {
		g.T.Errorf("the group begins at level %d, want %d", level, wire.FeatureLevel)
	}
}

// firstClaims has a client leave two permits in a session, and another one claim both when the limit is one.
func firstClaims(g *Group) {
	id := wire.ID{1, 2, 3}
	acquire := func(limit uint32) *wire.Command {
		return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: "x", Session: id[:], Limit: limit, Permits: 2}}}
	}
	c := newKeyed(g)
	for i, command := range []*wire.Command{
		c.register(time.Minute), {Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: id[:]}}}, acquire(3),
		{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "x", Limit: 1}}}, {Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}},
	} {
		c.want(uint64(1+i), command, wire.Code_OK)
	}
	c = newKeyed(g)
	c.want(1, c.register(time.Minute), wire.Code_OK)
	c.want(2, &wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: id[:]}}}, wire.Code_OK)
	c.want(3, acquire(1), wire.Code_OK)
}

func firstWorksOnShards(g *Group) {
	ctx, stop := context.WithCancel(Bounded(g.T))
	defer stop()
	begun := make(chan int, 2)
	ended := make(chan error, 1)
	go func() {
		ended <- g.last().Shards("x", 2).Run(ctx, func(ctx context.Context, shard int, _ conclave.Fence) error {
			begun <- shard
			<-ctx.Done()
			return nil
		})
	}()
	sum := 0
	for range 2 {
		select {
		case shard := <-begun:
			sum += shard
		case err := <-ended:
			g.T.Fatal(err)
		}
	}
	if sum != 1 {
		g.T.Errorf("the sum of the shards is %d, want 1", sum)
	}
	stop()
	WantError(g.T, <-ended, context.Canceled)
}

func firstIsChecked(g *Group) {
	MustSession(g.T, g.last(), &conclave.SessionConfig{Checks: []string{conclave.ProcessCheck}})
}

// causes is a tracer that keeps the causes of grants. Its spans are all the same one.
type causes struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (c *causes) Begin(context.Context, conclave.Operation) conclave.Span { return c }
func (c *causes) Carrier() []byte                                         { return []byte("a release") }
func (c *causes) End(error)                                               {}

func (c *causes) Event(e conclave.SpanEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Kind == conclave.SpanGranted {
		c.all = append(c.all, string(e.Cause))
	}
}

func (c *causes) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func firstHasCause(g *Group) {
	held := g.Nodes[0].FencedLock("x")
	MustLock(g.T, held)
	w := StartLock(g.T, g.last().FencedLock("x"))
	MustUnlock(g.T, held)
	Must(g.T, <-w.Err)
	if got := g.Configs[len(g.Configs)-1].Tracer.(*causes).list(); !slices.Contains(got, "a release") {
		g.T.Errorf("causes %q", got)
	}
}

func firstByClient(g *Group) {
	newKeyed(g) // is not refused, while Dial would retry
	MustLock(g.T, Dial(g.T, &conclave.ClientConfig{}, g.last()).FencedLock("x"))
}

func firstStandalone(g *Group) {
	ctx := Bounded(g.T)
	if level := g.Member(len(g.Nodes) - 1).Replica().Level(); level < wire.LevelStandalone {
		g.T.Errorf("the call would raise the level from %d", level)
	}
	id, err := g.last().CreateSession(ctx, &conclave.SessionConfig{TTL: time.Minute, NoChecks: true})
	Must(g.T, err)
	Must(g.T, g.Nodes[0].RenewSession(ctx, id))
}

// firstReusesKey has a client end, and register its key again by a command that is valid for
// longer than the first one.
func firstReusesKey(g *Group) {
	c := newKeyed(g)
	const valid = 10 * time.Second // from the group's time, which is that of its last entry
	c.want(1, c.register(valid), wire.Code_OK)
	for end := time.Now().Add(valid + 100*time.Millisecond); time.Now().Before(end); Pass(time.Second) {
		Must(g.T, c.conn.Send(nil)) // a member closes a connection on which nothing arrives
	}
	c.want(2, &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}, wire.Code_OK)
	c.want(1, c.register(time.Minute), wire.Code_UNKNOWN_INCARNATION)
}

func firstHasSlots(g *Group) {
	ctx := Bounded(g.T)
	p, err := g.last().Semaphore("workers", 3).Acquire(ctx, 2)
	Must(g.T, err)
	info, err := g.Nodes[0].Semaphore("workers", 3).Info(ctx)
	if err != nil || !slices.Equal(p.Slots(), []int{0, 1}) || len(info.Holders) != 1 || !slices.Equal(info.Holders[0].Slots(), []int{0, 1}) {
		g.T.Errorf("the first two permits have the numbers %v; %+v, %v", p.Slots(), info.Holders, err)
	}
}

// firstShares has two handles hold a lock at the same time, and a third one downgrade to that.
func firstShares(g *Group) {
	c, id := newKeyed(g), wire.ID{1, 2, 3}
	c.want(1, c.register(10*time.Second), wire.Code_OK)
	c.want(2, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: id[:], Ttl: int64(time.Minute)}}}, wire.Code_OK)
	for i := range uint64(2) {
		c.want(3+i, &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: "x", Session: id[:], Handle: i, Shared: true}}}, wire.Code_OK)
	}
	c.want(5, &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{Name: "x", Session: id[:]}}}, wire.Code_NOT_HELD)
}

// firstIsRefused has two sessions wait for each other, of which the second one is refused.
func firstIsRefused(g *Group) {
	c, ids := newKeyed(g), []wire.ID{{1, 2, 3}, {1, 2, 4}}
	c.want(1, c.register(10*time.Second), wire.Code_OK)
	names := []string{"x", "y"}
	for i, id := range ids {
		seq := uint64(2 + 2*i)
		c.want(seq, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: id[:], Ttl: int64(time.Minute)}}}, wire.Code_OK)
		c.want(seq+1, &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: names[i], Session: id[:], Handle: 1}}}, wire.Code_OK)
	}
	for i, want := range []wire.Code{wire.Code_QUEUED, wire.Code_DEADLOCK} {
		lock := &wire.Lock{Name: names[1-i], Session: ids[i][:], Handle: 2, Wait: true, RefuseDeadlock: true}
		c.want(uint64(6+i), &wire.Command{Op: &wire.Command_Lock{Lock: lock}}, want)
	}
}

// keyed is a client that states what it likes under one key.
type keyed struct {
	g    *Group
	conn *hostile.Conn
	key  []byte
	now  int64 // group time at the time at
	at   time.Time
}

func newKeyed(g *Group) *keyed {
	g.T.Helper()
	key := hostile.NewKey()
	conn, refusal, err := hostile.Connect(g.Nodes[0].Addr(), key, hostile.ClientHello(key, "conclave"))
	if err != nil || refusal != "" {
		g.T.Fatal(refusal, err)
	}
	g.T.Cleanup(func() { conn.Close() })
	c := &keyed{g: g, conn: conn, key: hostile.Public(key)}
	Must(g.T, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}))
	c.now, c.at = c.receive().GetAttached().GetNow(), time.Now()
	return c
}

func (c *keyed) receive() *wire.MemberFrame {
	c.g.T.Helper()
	body, err := c.conn.Receive()
	Must(c.g.T, err)
	f := new(wire.MemberFrame)
	Must(c.g.T, proto.Unmarshal(body, f))
	return f
}

// register returns a registration that is valid for some time from now on.
func (c *keyed) register(valid time.Duration) *wire.Command {
	return &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{
		Key: c.key, Ttl: int64(10 * time.Minute), Until: c.now + int64(time.Since(c.at)+valid),
	}}}
}

// want submits a command, and fails the test unless its outcome has the code.
func (c *keyed) want(seq uint64, command *wire.Command, code wire.Code) {
	c.g.T.Helper()
	body, err := proto.Marshal(command)
	Must(c.g.T, err)
	s := &wire.Submission{Applied: 1 << 60, Calls: []*wire.Call{{Seq: seq, Command: body}}}
	Must(c.g.T, c.conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: s}}))
	for {
		for _, n := range c.receive().GetDelivery().GetNotices() {
			if o := n.GetOutcome(); o != nil && o.GetSeq() == seq {
				if o.GetReply().GetCode() != code {
					c.g.T.Errorf("call %d: %v, want %v", seq, o.GetReply(), code)
				}
				return
			}
		}
	}
}
