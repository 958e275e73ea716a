package virtualtime

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// A member cannot end the session of another one by forged deaths, neither by one that
// cannot be refuted nor by those that can. The session has no TTL, so only its gossip check
// can end it; the failure detector takes half a minute for what gossip does not show.
func TestHostile_ForgedDeaths(t *testing.T) {
	for name, incarnation := range map[string]uint32{"which cannot be refuted": hostile.Final, "the largest that can be refuted": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				leader := g.Leader()
				liar, victim := g.Others(leader)[0], g.Others(leader)[1]
				g.Kill(liar)
				session := grouptest.MustSession(g.T, g.Nodes[victim], &conclave.SessionConfig{TTL: conclave.NoTTL})
				lock := session.FencedLock("x")
				fence := grouptest.MustLock(g.T, lock)
				links := packetLinks(g, liar, leader, victim)
				begin := time.Now()
				for time.Since(begin) < 3*gossipPatience {
					for _, link := range links {
						grouptest.Must(g.T, link.Send(hostile.ForgedDeath(uint64(g.ID(victim)), g.Boot(victim), incarnation)))
					}
					pass(time.Second)
					if incarnation == hostile.Final && !alive(g.Nodes[leader], g.ID(victim)) {
						g.T.Fatalf("the leader believed a forged death after %v", time.Since(begin))
					}
				}
				now, err := lock.Fence()
				if _, ok := grouptest.FindSession(g.T, g.Nodes[leader], session.ID()); !ok || err != nil || now != fence {
					g.T.Fatalf("the session is in the group: %t; its lock has fence %v, %v; want %v", ok, now, err, fence)
				}
				hostile.Attempt(t, "A5", fmt.Sprintf("declare a member dead each second for %v, with incarnation %d, %s", time.Since(begin), incarnation, name),
					"its session without a TTL and with a gossip check lives, and its lock has fence %v as before", now)
			})
		})
	}
}

// packetLinks connects to members for packets of gossip, with the key of one that was
// killed.
func packetLinks(g *grouptest.Group, liar int, members ...int) (links []*hostile.Conn) {
	g.T.Helper()
	key, record := grouptest.Stolen(g.T, storage.Options{Dir: g.Configs[liar].Dir, FS: g.Seams[liar].FS})
	h := hostile.AsMember(key, record, wire.Kind_GOSSIP_PACKETS)
	for _, i := range members {
		link, err := hostile.Replace(func() (net.Conn, error) {
			return g.Net.Dial(context.Background(), liar, g.Configs[i].Bind)
		}, key, h)
		grouptest.Must(g.T, err)
		g.T.Cleanup(func() { link.Close() })
		links = append(links, link)
	}
	return links
}

// alive reports whether gossip shows a member alive.
func alive(n *conclave.Node, id conclave.MemberID) bool {
	for _, m := range n.Status().Members {
		if m.ID == id {
			return m.Alive
		}
	}
	return false
}
