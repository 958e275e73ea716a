package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts yield into testdata")

// The scripts in testdata: prose on top, then blocks. The lines of a block above the ---- are
// events, after each of which the group runs until nothing happens any more; those below are what
// the members did. Messages arrive at once, unless their link is cut. An election timeout has 10
// ticks. The lines are
//
//	group 1 2 3 | 4 keep=2       voters and standbys with empty logs; keep, keepbytes, checkpoint, calls: Config
//	newcomer 5                   a process with an empty log, which the group does not know yet
//	campaign 1                   "elect 1" expects that it leads, and prints nothing
//	tick 5 [1 2]                 of all members, or of some
//	cut 1->2 [append]            lose what is sent, or one kind of it; "cut 1 2" in both directions
//	isolate 3                    cut all its links
//	heal                         no link is cut
//	disconnect 1 2               1 notices that the connection from 2 has broken; "lost 2": all others
//	reconnect 1 2                1 has a new connection to 2
//	crash 3, start 3             without what its disk has not completed
//	slow 1 [changes]             its disk completes no write, or none that applies a membership change
//	disk 1                       completes the write under way; "fast 1": and all later ones at once
//	propose x=1 ; remove 3       commands at the leader, see ledger; "pad x 9" puts 9 KiB
//	submit 2 x=1                 a call of member 2; "urgent 2 x=1"
//	read 2, transfer 2 3         "transfer 2": to any member
//	flip 3 x                     a bit flips in the memory of member 3, in the value of x
//	streams hold, streams run    snapshots arrive later, or now
//	progress 1 3 100             member 1 has sent 100 MiB of its snapshot for 3
//	watch vote, 1->3, 2->3 read  print messages of a kind, or on a link, or both; "unwatch"; also "checkpoints" and
//	                             "truncations" of all members, or "1 truncations"
//	status 1 2, peers 1, log 1, state 1
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1) // raft draws election timeouts from it
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newPlayers(t).play(strings.TrimSpace(string(text)))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// play carries out a script and fails the test where something else comes of it. It returns the
// script with what came of it.
func (g *players) play(text string) string {
	g.t.Helper()
	blocks := strings.Split(text, "\n\n")
	for i, block := range blocks {
		input, want, ok := strings.Cut(block+"\n", "\n----\n")
		if !ok {
			continue // prose
		}
		g.out.Reset()
		for line := range strings.Lines(input) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				g.line(strings.Fields(line))
				g.run()
			}
		}
		got := g.out.String()
		if got == "" {
			got = "nothing\n"
		}
		blocks[i] = strings.TrimSuffix(input+"\n----\n"+got, "\n")
		if got != want && !*rewrite {
			g.t.Errorf("%s\n----\n%swant\n%s", input, got, want)
		}
	}
	return strings.Join(blocks, "\n\n")
}

// line carries out an event.
func (g *players) line(f []string) {
	events := map[string]func([]string){
		"group": g.form, "newcomer": func(f []string) { g.add(number(f[0]), nil) },
		"tick": g.tick, "cut": g.cutLink, "isolate": g.isolate, "elect": g.elect, "heal": func([]string) { clear(g.cut) },
		"crash": func(f []string) { g.member(f).stop(errUnanswered) }, "start": func(f []string) { g.member(f).start() },
		"campaign":   func(f []string) { p := g.member(f); p.ignore(p.node.Campaign()) },
		"disconnect": func(f []string) { g.member(f).PeerDisconnected(number(f[1])) },
		"reconnect":  func(f []string) { g.member(f).Reconnected(number(f[1])) },
		"lost":       g.lost,
		"slow":       func(f []string) { g.member(f).slow = append(f, "all")[1] },
		"disk":       func(f []string) { g.member(f).complete() }, "fast": g.fast,
		"propose": g.propose, "submit": g.submit, "urgent": g.submitUrgent, "read": g.read, "transfer": g.transfer,
		"flip":     func(f []string) { g.member(f).Machine().(*ledger).state[f[1]] += "!" },
		"streams":  func(f []string) { g.paused = f[0] == "hold" },
		"progress": func(f []string) { g.member(f).SnapshotProgress(number(f[1]), number(f[2])<<20) },
		"watch":    g.watch,
		"unwatch":  func([]string) { clear(g.watched) },
		"status":   g.each((*player).status), "peers": g.each((*player).peerLines), "log": g.each((*player).logLines),
		"state": g.each(func(p *player) { g.printf("%d: %v", p.id, p.Machine()) }),
	}
	event := events[f[0]]
	if event == nil {
		g.t.Fatalf("no such event: %q", f)
	}
	event(f[1:])
}

func (g *players) member(f []string) *player {
	p := g.all[number(f[0])]
	if p == nil {
		g.t.Fatalf("no such member: %q", f)
	}
	return p
}

func (g *players) each(do func(*player)) func([]string) {
	return func(f []string) {
		for i := range f {
			do(g.member(f[i:]))
		}
	}
}

// leader returns the leader of the highest term.
func (g *players) leader() (leader *player) {
	for _, p := range g.all { // order: terms differ
		if p.up && p.isLeader() && (leader == nil || p.term > leader.term) {
			leader = p
		}
	}
	if leader == nil {
		g.t.Fatalf("no member leads\n%s", g.out.String())
	}
	return leader
}

func (g *players) form(f []string) {
	conf := new(raftpb.ConfState)
	to := &conf.Voters
	for _, word := range f {
		if name, value, ok := strings.Cut(word, "="); ok {
			g.options[name] = number(value)
		} else if word == "|" {
			to = &conf.Learners
		} else {
			*to = append(*to, number(word))
		}
	}
	for _, id := range slices.Concat(conf.Voters, conf.Learners) {
		g.add(id, conf)
	}
}

func (g *players) tick(f []string) {
	ids := g.ids()
	if len(f) > 1 {
		ids = nil
		for _, id := range f[1:] {
			ids = append(ids, number(id))
		}
	}
	for range number(f[0]) {
		for _, id := range ids {
			if p := g.all[id]; p.up {
				p.at += tick
				p.Tick()
			}
		}
		g.run()
	}
}

func (g *players) cutLink(f []string) {
	if strings.Contains(f[0], "->") {
		g.cut[strings.Join(f, " ")] = true
		return
	}
	g.cut[f[0]+"->"+f[1]], g.cut[f[1]+"->"+f[0]] = true, true
}

func (g *players) isolate(f []string) {
	for _, id := range g.ids() {
		g.cut[fmt.Sprintf("%s->%d", f[0], id)], g.cut[fmt.Sprintf("%d->%s", id, f[0])] = true, true
	}
}

// elect has a member be elected.
func (g *players) elect(f []string) {
	before := g.out.String()
	p := g.member(f)
	p.ignore(p.node.Campaign())
	g.run()
	if g.tick([]string{"1"}); g.leader() != p {
		g.t.Fatalf("%d does not lead:\n%s", p.id, g.out.String())
	}
	g.out.Reset()
	g.out.WriteString(before)
}

func (g *players) lost(f []string) {
	for _, id := range g.ids() {
		if p := g.all[id]; p.up && id != number(f[0]) {
			p.PeerDisconnected(number(f[0]))
		}
	}
}

func (g *players) watch(f []string) {
	for _, what := range strings.Split(strings.Join(f, " "), ", ") {
		g.watched[what] = true
	}
}

func (g *players) fast(f []string) {
	p := g.member(f)
	if p.slow = ""; p.writing != nil {
		p.complete()
	}
}

// propose has the leader receive commands together.
func (g *players) propose(f []string) {
	p := g.leader()
	s := &wire.Submission{Member: p.id, Incarnation: append([]byte("script"), make([]byte, 10)...), Applied: p.applied}
	for _, text := range strings.Split(strings.Join(f, " "), " ; ") {
		g.options["proposals"]++
		var key string
		var size int
		if n, _ := fmt.Sscanf(text, "pad %s %d", &key, &size); n == 2 {
			text = key + "=" + strings.Repeat("p", size<<10)
		}
		s.Calls = append(s.Calls, &wire.Call{Seq: g.options["proposals"], Command: []byte(text)})
	}
	p.mustSubmit(s)
}

func (g *players) submit(f []string)       { g.call(f, false) }
func (g *players) submitUrgent(f []string) { g.call(f, true) }

// call submits a call. The first one of a process registers it.
func (g *players) call(f []string, urgent bool) {
	p, text := g.member(f), strings.Join(f[1:], " ")
	if !p.joined {
		p.joined = true
		p.Submit([]byte("register"), &scriptCall{p, "register"}, true)
	}
	for _, text := range strings.Split(text, " ; ") {
		p.Submit([]byte(text), &scriptCall{p, text}, urgent)
	}
}

func (g *players) read(f []string) {
	p := g.member(f)
	if err := p.Read(scriptRead{p}); err != nil {
		g.printf("%d: read refused: %v", p.id, err)
	}
}

func (g *players) transfer(f []string) {
	p, to, done := g.member(f), "0", make(chan error, 1)
	what := "transfer"
	if len(f) > 1 {
		to, what = f[1], "transfer to "+f[1]
	}
	p.waits[what] = done
	p.Transfer(number(to), done)
}

func decodeBatch(data []byte) *wire.Batch {
	batch := new(wire.Batch)
	if err := proto.Unmarshal(data, batch); err != nil {
		panic(err)
	}
	return batch
}
