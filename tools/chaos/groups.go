//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// defaultGroup is the name of the default group in histories.
const defaultGroup = ""

// mostGroups bounds -groups.
const mostGroups = 16

// groupNames returns the groups that a run has all the time: the default one, and n-1 further ones.
func groupNames(n int) []string {
	names := []string{defaultGroup}
	for i := 1; i < n; i++ {
		names = append(names, fmt.Sprintf("further-%d", i))
	}
	return names
}

// Short-lived groups, which the load creates, deletes and creates again under the same names.
const (
	// kept: they are deleted without force only, so never with a hold. A history of such a name is that of one group.
	kept = "kept"
	// forced: they are deleted with all that they hold. Each one of a name is an instance with a history of its own.
	forced = "forced"

	namesOfEach = 2
)

// baseOf returns the name of a group, which all its instances have in a history.
func baseOf(group string) string {
	base, _, _ := strings.Cut(group, "#")
	return base
}

// instanceOf is the name in a history of one of the groups that have a name one after the other.
func instanceOf(name, instance string) string { return name + "#" + instance }

// isBrief reports whether a group is a short-lived one.
func isBrief(group string) bool {
	return strings.HasPrefix(group, kept+"-") || isForced(group)
}

func isForced(group string) bool { return strings.HasPrefix(group, forced+"-") }

// progress has when the last successful operation in each group was called.
type progress struct {
	mu   sync.Mutex
	last map[string]int64 // guarded by mu
}

func (p *progress) made(group string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[string]int64)
	}
	p.last[group] = max(p.last[group], at)
}

func (p *progress) of(group string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[group]
}

// groupStatus is what a member knows of a group.
type groupStatus struct {
	Leader string `json:"leader,omitempty"`
	Term   uint64 `json:"term,omitempty"`
	OK     int64  `json:"ok,omitempty"` // when the last successful operation was called
}

// groupStatuses returns what this member knows of the groups that a run has all the time.
func (m *memberProcess) groupStatuses(node *conclave.Node) map[string]groupStatus {
	s := node.Status()
	all := map[string]groupStatus{defaultGroup: {Leader: s.Leader.String(), Term: s.Term, OK: m.progress.of(defaultGroup)}}
	if len(m.groups) == 1 {
		return all
	}
	for _, g := range node.Metrics().Groups {
		if !isBrief(g.Name) {
			all[g.Name] = groupStatus{Leader: g.Leader.String(), Term: g.Term, OK: m.progress.of(g.Name)}
		}
	}
	return all
}

// createGroups creates the further groups and reports the result.
func (m *memberProcess) createGroups(node *conclave.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), createLimit)
	defer cancel()
	n := notice{What: isCreated}
	for _, name := range m.groups[1:] {
		if _, err := node.CreateGroup(ctx, name, conclave.GroupConfig{}); err != nil {
			n.Error = err.Error()
			break
		}
	}
	m.say(n)
}

const createLimit = 30 * time.Second

// createGroups has a member create the further groups.
func (g *group) createGroups(ctx context.Context) error {
	names := groupNames(g.o.groups)
	if len(names) == 1 {
		return nil
	}
	p := g.members[0].process
	p.order(order{Do: doCreate})
	select {
	case why := <-p.created:
		if why != "" {
			return errors.New("create the further groups: " + why)
		}
	case <-p.done:
		return errors.New("create the further groups: the member has stopped: " + p.stopped())
	case <-ctx.Done():
		return ctx.Err()
	}
	g.groups = names
	return nil
}

// leaderOf returns the running member that leads a group in the highest term, or nil.
func (g *group) leaderOf(name string) *member {
	var leader *member
	var term uint64
	for _, m := range g.members {
		if !m.isOpen() {
			continue
		}
		n := m.process.last()
		if s := n.Groups[name]; s.Leader == n.ID && n.ID != "" && s.Term > term {
			leader, term = m, s.Term
		}
	}
	return leader
}

// ledBy returns the groups that a member leads.
func (g *group) ledBy(m *member) (names []string) {
	for _, name := range g.groups {
		if g.leaderOf(name) == m {
			names = append(names, name)
		}
	}
	return names
}

// death is that of the leader of a group.
type death struct {
	group string
	at    int64
}

// describeGroup names a group for people.
func describeGroup(name string) string {
	if name == defaultGroup {
		return "the default group"
	}
	return "group " + name
}

// illGroup returns why a group is not healthy, or "". The members that have joined are open.
func (g *group) illGroup(name string, since int64) string {
	leader, of := "", ""
	for _, m := range g.members {
		if !m.joined {
			continue
		}
		s := m.process.last().Groups[name]
		switch {
		case s.Leader == "" || strings.Trim(s.Leader, "0") == "":
			return fmt.Sprintf("%s knows no leader of %s", m.name, describeGroup(name))
		case leader != "" && s.Leader != leader:
			return fmt.Sprintf("%s follows %s, %s follows %s in %s", m.name, s.Leader, of, leader, describeGroup(name))
		case g.phase != nil && s.OK < since:
			return fmt.Sprintf("%s completes no operation in %s", m.name, describeGroup(name))
		}
		leader, of = s.Leader, m.name
	}
	return ""
}
