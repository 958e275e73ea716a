package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// players is the group of a script: cores with disks, and a network without delay.
type players struct {
	t       *testing.T
	all     map[uint64]*player
	options map[string]uint64 // of the group line
	cut     map[string]bool   // "1->2", and "1->2 app" for one kind of message
	streams []*stream
	paused  bool            // snapshots do not arrive
	watched map[string]bool // kinds of messages that are printed; also "checkpoints" and "truncations"
	out     strings.Builder
}

// player is a member of a script's group.
type player struct {
	*rig
	group   *players
	id      uint64
	starts  int
	up      bool
	slow    string // which writes its disk does not complete: "all", "changes", "": none
	writing []write
	joined  bool // its registration is submitted
	waits   map[string]chan error
}

func newPlayers(t *testing.T) *players {
	return &players{t: t, all: make(map[uint64]*player), options: make(map[string]uint64), cut: make(map[string]bool), watched: make(map[string]bool)}
}

func (g *players) ids() []uint64 { return slices.Sorted(maps.Keys(g.all)) }

func (g *players) printf(format string, args ...any) { fmt.Fprintf(&g.out, format+"\n", args...) }

// add adds a member, with the first entry of a new group if conf is not nil.
func (g *players) add(id uint64, conf *raftpb.ConfState) {
	store, err := storage.Open(storage.Options{Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = store.Close() })
	p := &player{rig: &rig{t: g.t, store: store}, group: g, id: id, waits: make(map[string]chan error)}
	g.all[id] = p
	p.open()
	if conf != nil {
		if err := p.log.Bootstrap(conf); err != nil {
			g.t.Fatal(err)
		}
	}
	p.start()
}

// start starts a process on the disk.
func (p *player) start() {
	p.open()
	machine, err := raftlog.Load(p.log, loadLedger)
	if err != nil {
		p.t.Fatal(err)
	}
	p.starts++
	p.up, p.joined, p.writing, p.slow = true, false, nil, ""
	options := p.group.options
	p.rig.start(func(c *Config) {
		c.ID, c.Machine, c.Incarnation = p.id, machine, wire.ID{byte(p.id), byte(p.starts)}
		c.Rand, c.Logger = rand.New(rand.NewPCG(p.id, 1)), slog.New(scriptLog{p})
		c.Keep, c.KeepBytes = cmp.Or(options["keep"], c.Keep), cmp.Or(options["keepbytes"], c.KeepBytes)
		c.Quiet = options["quiet"] != 0
		if n := options["logs"]; n != 0 {
			c.Budgets.Logs = NewLogs(int64(n), int64(options["awaited"]), 1)
		}
		c.CheckpointEntries, c.MaxCalls = int(options["checkpoint"]), int(cmp.Or(options["calls"], 10))
	})
}

// stop ends a process; what its disk has not completed is lost.
func (p *player) stop(why error) {
	p.up = false
	p.Abandon(why)
	for _, s := range p.group.streams {
		if s.from == p || s.to == p.id {
			s.sent = cmp.Or(s.sent, errUnanswered)
		}
	}
}

// run delivers messages and completes writes until nothing happens any more.
func (g *players) run() {
	for range 10_000 {
		busy := false
		for _, id := range g.ids() {
			if p := g.all[id]; p.up {
				busy = p.step() || busy
			}
		}
		if busy = g.stream() || busy; !busy {
			return
		}
	}
	g.t.Fatalf("the group does not come to rest\n%s", g.out.String())
}

// step takes the effects of a core and carries them out. It reports whether there were any.
func (p *player) step() (busy bool) {
	g, role, term := p.group, p.role, p.term
	out, err := p.Take(p.at)
	if err != nil {
		g.printf("%d: stops: %s", p.id, shorten(err.Error()))
		p.stop(err)
		return true
	}
	if out.LeaderChanged && (role.Lead != p.role.Lead || role.RaftState != p.role.RaftState || term != p.term && p.role.Lead != raft.None) {
		g.printf("%d: %s, term %d", p.id, p.roleName(), p.term)
	}
	if out.Membership != nil {
		g.printf("%d: members %s", p.id, memberNames(out.Membership))
	}
	for _, m := range out.Messages {
		g.send(p.id, m.GetTo(), kindOf(m), describe(m), func(to *player) {
			if err := to.Receive(p.id, proto.CloneOf(m)); err != nil {
				g.printf("%d: refuses %s: %v", to.id, kindOf(m), err)
				if errors.Is(err, ErrForgot) {
					to.stop(err)
				}
			}
		})
	}
	p.sendRest(out)
	for _, n := range out.Notifications {
		if n.Call != nil {
			n.Call.Deliver(n.Ticket, n.Reply, n.More)
		}
	}
	for _, r := range out.Reads {
		r.Run(out.Machine)
	}
	p.answers()
	p.write(out.Batch)
	return len(out.Messages)+len(out.Forwards)+len(out.Digests)+len(out.Quiet)+len(out.Transfers)+len(out.Snapshots)+len(out.Notifications) > 0 ||
		!out.Batch.isEmpty() && len(p.writing) == 0
}

// sendRest sends what is not raft's.
func (p *player) sendRest(out Effects) {
	g := p.group
	for _, f := range out.Forwards {
		var texts []string
		for _, c := range f.Submission.GetCalls() {
			texts = append(texts, commandText(c.GetCommand()))
		}
		g.send(p.id, f.To, "submission", strings.Join(texts, "; "), func(to *player) {
			if err := to.ReceiveSubmission(p.id, proto.CloneOf(f.Submission)); err != nil {
				g.printf("%d: refuses a submission: %v", to.id, err)
			}
		})
	}
	for _, m := range out.Transfers {
		text := fmt.Sprintf("to %d in term %d, refused %t", m.Transfer.GetTo(), m.Transfer.GetTerm(), m.Transfer.GetRefused())
		g.send(p.id, m.To, "transfer", text, func(to *player) { to.ReceiveTransfer(p.id, m.Transfer) })
	}
	for _, m := range out.Digests {
		g.send(p.id, m.To, "digest", fmt.Sprintf("of %d", m.Digest.GetIndex()), func(to *player) { to.ReceiveDigest(p.id, m.Digest) })
	}
	for _, m := range out.Quiet {
		text := fmt.Sprintf("%v at %d", m.Quiet.GetStep(), m.Quiet.GetIndex())
		g.send(p.id, m.To, "quiet", text, func(to *player) { to.ReceiveQuiet(p.id, m.Quiet) })
	}
	for _, to := range out.Cancelled {
		g.printf("%d: cancels the snapshot for %d", p.id, to)
		for _, s := range g.streams {
			if s.from == p && s.to == to {
				s.sent = cmp.Or(s.sent, errUnanswered)
			}
		}
	}
	for _, m := range out.Snapshots {
		p.beginStream(m)
	}
}

// send delivers a message at once, unless the link is cut or the receiver is down.
func (g *players) send(from, to uint64, kind, text string, deliver func(*player)) {
	link := fmt.Sprintf("%d->%d", from, to)
	lost := g.cut[link] || g.cut[link+" "+kind]
	if g.watched[kind] || g.watched[link] || g.watched[link+" "+kind] {
		g.printf("%s %s %s%s", link, kind, text, map[bool]string{true: " (lost)"}[lost])
	}
	if p := g.all[to]; p != nil && p.up && !lost {
		deliver(p)
	}
}

// write has the disk execute a batch, unless it is slow.
func (p *player) write(b Batch) {
	if b.isEmpty() {
		return
	}
	p.writing = b.writes
	for _, op := range b.Ops() {
		switch op := op.(type) {
		case raftlog.Truncate:
			if w := p.group.watched; w["truncations"] || w[fmt.Sprintf("%d truncations", p.id)] {
				p.group.printf("%d: truncates its log up to %d", p.id, op.Index)
			}
		case raftlog.Checkpoint:
			if p.group.watched["checkpoints"] {
				p.group.printf("%d: checkpoint at %d of %s", p.id, op.Index, changedKeys(op))
			}
		}
	}
	if p.slow == "all" || p.slow == "changes" && slices.ContainsFunc(b.writes, appliesChange) {
		return
	}
	p.complete()
}

// complete completes the batch under way.
func (p *player) complete() {
	b := Batch{p.writing}
	p.writing = nil
	if err := p.log.Write(b.Ops()); err != nil {
		p.t.Fatal(err)
	}
	var installed Machine
	if b.Installs() {
		machine, err := raftlog.Load(p.log, loadLedger)
		if err != nil {
			p.t.Fatal(err)
		}
		installed = machine
	}
	p.Stored(installed)
	if b.Installs() {
		p.group.printf("%d: has the state of %d", p.id, p.applied)
	}
}

// scriptLog prints what a core logs, without raft's lines.
type scriptLog struct{ p *player }

func (scriptLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l scriptLog) WithAttrs([]slog.Attr) slog.Handler             { return l }
func (l scriptLog) WithGroup(string) slog.Handler                  { return l }

func (l scriptLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	fromRaft := false
	r.Attrs(func(a slog.Attr) bool {
		fromRaft = fromRaft || a.Key == "from"
		line += fmt.Sprintf(", %s %v", a.Key, a.Value)
		return true
	})
	if !fromRaft {
		l.p.group.printf("%d: logs: %s", l.p.id, shorten(line))
	}
	return nil
}
