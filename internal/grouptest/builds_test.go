package grouptest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// builds is what a status shows of the members' builds and feature levels, and of the group's.
func builds(s conclave.Status) string {
	text := make(map[string]string)
	for _, m := range s.Members {
		text[m.Name] = fmt.Sprintf("%q %d", m.Build, m.FeatureLevel)
	}
	return fmt.Sprint(s.FeatureLevel, text)
}

// wantBuilds blocks until each node, and a client, shows the group's level, and a build and a level of each member.
func (g *Group) wantBuilds(c *conclave.Client, level uint32, members ...string) {
	g.T.Helper()
	text := make(map[string]string)
	for i, m := range members {
		text[g.Configs[i].Name] = m
	}
	want, got := fmt.Sprint(level, text), ""
	for _, n := range g.Nodes {
		if !g.poll(patience, func() bool { got = builds(n.Status()); return got == want }) {
			g.T.Errorf("%s shows %s, want %s", n.Status().Name, got, want)
		}
	}
	if !g.poll(patience, func() bool {
		s, err := c.Status(Bounded(g.T))
		Must(g.T, err)
		got = builds(s)
		return got == want
	}) {
		g.T.Errorf("a client shows %s, want %s", got, want)
	}
}

// Each member shows the leader priorities of those that it is connected to, and its own, and so does a client.
func TestStatus_LeaderPriority(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, Edit(func(i int, c *conclave.Config, _ *cluster.Seams) { c.LeaderPriority = -i }))
	c := Dial(t, new(conclave.ClientConfig), g.Nodes[0])
	ids := []conclave.MemberID{g.ID(0), g.ID(1), g.ID(2)}
	shows := func(s conclave.Status, unknown int) bool {
		for _, m := range s.Members {
			if i := slices.Index(ids, m.ID); m.PriorityKnown != (i != unknown) || m.PriorityKnown && m.LeaderPriority != -i {
				return false
			}
		}
		return len(s.Members) == len(ids)
	}
	for _, n := range g.Nodes {
		if !g.poll(patience, func() bool { return shows(n.Status(), -1) }) {
			t.Errorf("%+v", n.Status())
		}
	}
	g.Kill(2)
	if !g.poll(patience, func() bool {
		s, err := c.Status(Bounded(t))
		Must(t, err)
		return shows(s, 2)
	}) {
		t.Errorf("%+v, after the third member has crashed", g.Nodes[0].Status())
	}
}

// An operator sees at each member, and as a client, how far a rolling upgrade is: which build each member runs, and which
// feature level it supports.
func TestStatus_Builds(t *testing.T) {
	t.Parallel()
	const former = wire.FeatureLevel - 1
	g := Start(t, 3, Edit(func(i int, c *conclave.Config, s *cluster.Seams) {
		c.Name = fmt.Sprint("member-", i)
		if s.Build, s.FeatureLevel = "v0.1.0", former; i == 2 {
			s.Build = "v0.1.0\x1b[31m" // which no build states
		}
	}))
	c := Dial(t, new(conclave.ClientConfig), g.Nodes...)
	old := fmt.Sprintf("%q %d", "v0.1.0", former)
	g.wantBuilds(c, former, old, old, fmt.Sprintf("%q %d", "", former))
	upgraded := make([]string, 3)
	for i := range g.Nodes {
		g.Close(i)
		g.Seams[i].Build, g.Seams[i].FeatureLevel = "v0.2.0", wire.FeatureLevel
		g.Start(i)
		upgraded[i] = fmt.Sprintf("%q %d", "v0.2.0", wire.FeatureLevel)
		if i == 0 {
			g.wantBuilds(c, former, upgraded[0], old, fmt.Sprintf("%q %d", "", former))
		}
	}
	g.wantBuilds(c, wire.FeatureLevel, upgraded...)
}
