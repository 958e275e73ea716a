package virtualtime

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// Members claim to support the older or the newer of these feature levels.
const older, newer = 1, wire.LevelLinger

// A standby of the old build is partitioned until its registration has expired, and an
// operator raises the level by force. When the partition ends, the standby meets the level
// in its log, or in a snapshot, and stops. With the new build it opens the same directory
// and catches up.
func TestUpgrade_PartitionedStandby(t *testing.T) {
	for name, test := range map[string]struct {
		opts   []grouptest.Option
		reason string
	}{
		"meets the level in its log":    {nil, "applying entry"},
		"meets the level in a snapshot": {[]grouptest.Option{grouptest.ShortLog}, "load the state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grouptest.InBubble(t, 4, func(g *grouptest.Group) {
				standby := standbyOf(g)
				voters := g.Others(standby)
				before := g.ID(standby)
				for _, i := range voters {
					rebuild(g, i)
				}
				node := g.Nodes[voters[0]]
				g.Disconnect(standby)
				pass(2 * time.Minute) // its registration expires
				grouptest.Must(g.T, g.Member(voters[0]).Replica().RaiseLevel(g.T.Context(), newer, true))
				held := grouptest.MustLock(g.T, node.FencedLock("held"))
				grouptest.Busy(g.T, node, 50)
				g.Net.Rejoin(standby)
				<-g.Nodes[standby].Done()
				err := g.Nodes[standby].Err()
				if grouptest.WantError(g.T, err, conclave.ErrUpgradeRequired); !strings.Contains(err.Error(), test.reason) {
					g.T.Errorf("it stops with %v, want %q", err, test.reason)
				}
				rebuild(g, standby)
				g.AwaitApplied(standby)
				wantLevel(g, standby, newer)
				info, err := g.Nodes[standby].FencedLock("held").Info(g.T.Context())
				if err != nil || info.Fence != held || g.ID(standby) != before {
					g.T.Errorf("member %v has %+v, %v; want fence %v at member %v", g.ID(standby), info, err, held, before)
				}
				g.WantWorking()
			}, append(test.opts, threeVoters)...)
		})
	}
}

// threeVoters makes the other members standbys. All are of the older build.
var threeVoters = grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) { c.Voters, s.FeatureLevel = 3, older })

// rebuild restarts a member with the newer build.
func rebuild(g *grouptest.Group, i int) {
	g.T.Helper()
	g.Kill(i)
	g.Seams[i].FeatureLevel = newer
	g.Start(i)
}

func wantLevel(g *grouptest.Group, i int, want uint32) {
	g.T.Helper()
	if level, err := g.Member(i).Replica().FeatureLevel(g.T.Context()); err != nil || level != want {
		g.T.Errorf("member %d is at level %d, %v; want %d", i, level, err, want)
	}
}

// standbyOf returns the standby of a group of four.
func standbyOf(g *grouptest.Group) int {
	g.T.Helper()
	for i, n := range g.Nodes {
		if n.Status().Role == conclave.Standby {
			return i
		}
	}
	g.T.Fatal("no standby")
	return 0
}
