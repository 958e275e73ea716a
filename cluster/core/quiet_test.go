package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Members crash, lose connections and messages, and get work, while their group is quiet or about to be. When the faults end,
// it serves every member, and is quiet again.
func TestQuiet_Faults(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			g := newPlayers(t)
			logs := []string{"", " logs=1 awaited=1", " logs=1000 awaited=2000"}[seed%3] // of what other groups leave
			g.form(strings.Fields("1 2 3 | 4 quiet=1 checkpoint=1 calls=1000" + logs))
			g.elect([]string{"1"})
			quiet := 0
			for range 40 {
				g.line(strings.Fields(fault(g, r)))
				g.run()
				if g.all[1].Quiet() && g.all[2].Quiet() && g.all[3].Quiet() {
					quiet++
				}
			}
			g.end(t)
			if quiet == 0 && seed == 0 {
				t.Error("the group has never been quiet")
			}
		})
	}
}

// fault returns an event of a script.
func fault(g *players, r *rand.Rand) string {
	ids := g.ids()
	a := ids[r.IntN(len(ids))]
	b := ids[r.IntN(len(ids))]
	switch p := g.all[a]; {
	case !p.up && r.IntN(3) == 0:
		return fmt.Sprint("start ", a)
	case !p.up || a == b:
		return fmt.Sprint("tick ", 1+r.IntN(60))
	}
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf("cut %d->%d %s", a, b, []string{"quiet", "heartbeat", "append", "submission"}[r.IntN(4)])
	case 1:
		return "heal"
	case 2:
		return fmt.Sprintf("disconnect %d %d", a, b)
	case 3:
		return fmt.Sprintf("reconnect %d %d", a, b)
	case 4:
		if up := slices.DeleteFunc(ids, func(id uint64) bool { return !g.all[id].up }); len(up) == len(g.all) {
			return fmt.Sprint("crash ", a)
		}
		return fmt.Sprintf("cut %d %d", a, b)
	case 5:
		return fmt.Sprintf("submit %d k%d=v", a, b)
	case 6:
		return fmt.Sprint("read ", a)
	case 7:
		return fmt.Sprintf("tick %d %d", 1+r.IntN(30), a) // its clock is fast
	}
	return fmt.Sprint("tick ", 1+r.IntN(60))
}

// end ends the faults, and checks that the group serves every member, and is quiet.
func (g *players) end(t *testing.T) {
	clear(g.cut)
	for _, id := range g.ids() {
		if !g.all[id].up {
			g.all[id].start()
		}
		for _, other := range g.ids() {
			if other != id {
				g.all[id].Reconnected(other)
			}
		}
	}
	for _, id := range g.ids() {
		g.line([]string{"tick", "60"})
		g.submit([]string{fmt.Sprint(id), fmt.Sprintf("end%d=1", id)})
		g.run()
	}
	g.line([]string{"tick", "200"})
	g.checkQuiet(t)
	g.loseLeader(t)
}

// loseLeader crashes the leader of a quiet group, which one of the other voters notices.
func (g *players) loseLeader(t *testing.T) {
	former := g.leader()
	former.stop(errUnanswered)
	voters := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == former.id })
	g.all[voters[former.term%2]].PeerDisconnected(former.id)
	g.run()
	g.line([]string{"tick", "60"})
	if next := g.leader(); next == former || !next.clock.running {
		t.Errorf("the group has no leader without %d: %v", former.id, next.Core)
	}
}

func (g *players) checkQuiet(t *testing.T) {
	for _, id := range g.ids() {
		if p := g.all[id]; p.Machine().(*ledger).state[fmt.Sprintf("end%d", id)] != "1" || !p.Quiet() || p.tickets.Unanswered() {
			t.Errorf("member %d, quiet %t: %v, %v", id, p.Quiet(), p.Core, p.Machine())
		}
	}
}
