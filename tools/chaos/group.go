//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// group is the members under test, and what the nemeses do to them. Its methods are
// called by one goroutine.
type group struct {
	o        options
	dir      string
	first    string // the build of members that form a group
	binary   string // the build of members that start now
	network  *network
	members  []*member // those that form the group, then spare ones
	founders int
	resource string   // socket
	groups   []string // those that exist, but for short-lived ones
	deaths   []death
	spoiled  []string // unexpected ends, refusals that did not happen: violations
	rolls    []roll
	phase    *order // what the clients are to run; nil: paused
	trace    func(format string, args ...any)
}

// spares are the members that churn adds.
const spares = 2

const (
	openLimit    = 40 * time.Second
	healthyLimit = 60 * time.Second
)

func newGroup(o options, w *network, binary, resource string, trace func(string, ...any)) (*group, error) {
	g := &group{o: o, dir: o.dir, first: binary, network: w, founders: o.members, resource: resource, trace: trace}
	for i := range o.members + spares {
		g.members = append(g.members, &member{index: i, name: w.namespace(i), joined: i < o.members})
	}
	return g, os.MkdirAll(filepath.Join(g.dir, "logs"), 0o755)
}

// form starts the founders with empty directories, as a new group.
func (g *group) form(ctx context.Context, generation int) error {
	g.binary = g.first
	for _, m := range g.members {
		m.dir = filepath.Join(g.dir, fmt.Sprintf("data-%d", generation), m.name)
		m.joined = m.index < g.founders
		m.founding = m.joined
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
	}
	for _, m := range g.members[:g.founders] {
		if err := g.start(m); err != nil {
			return err
		}
	}
	g.groups = groupNames(1)
	if err := g.awaitHealthy(ctx, healthyLimit, 0); err != nil {
		return err
	}
	if err := g.createGroups(ctx); err != nil {
		return err
	}
	return g.awaitHealthy(ctx, healthyLimit, 0)
}

// start starts the process of a member.
func (g *group) start(m *member) error { return g.startBinary(m, g.binary) }

func (g *group) startBinary(m *member, binary string) error {
	if m.running() {
		return nil
	}
	m.starts++
	var join []string
	for _, other := range g.members {
		if other.joined || other == m {
			join = append(join, g.network.address(other.index))
		}
	}
	args := []string{
		modeMember, "-name", fmt.Sprintf("%s.%d", m.name, m.starts), "-dir", m.dir, "-bind", g.network.address(m.index),
		"-join", strings.Join(join, ","), "-resource", g.resource, "-clients", fmt.Sprint(g.clients()), "-groups", fmt.Sprint(g.o.groups),
		"-rate", fmt.Sprint(float64(g.o.rate) / float64(g.founders)), "-seed", fmt.Sprint(g.o.seed + uint64(100*m.starts+m.index)),
		"-voters", fmt.Sprint(g.voters()), "-log", m.logFile(filepath.Join(g.dir, "logs")),
	}
	if m.founding {
		args = append(args, "-expect", fmt.Sprint(g.founders))
	}
	p, err := launch(g.network.command(m.index, binary, args...), m.logFile(filepath.Join(g.dir, "logs")))
	if err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	m.process, m.frozen = p, false
	if g.phase != nil {
		p.order(*g.phase)
	}
	return nil
}

// clients is how many clients a member runs.
func (g *group) clients() int {
	if g.o.groups == 1 {
		return clientsPerMember
	}
	return clientsPerMember + briefClients
}

// voters is the largest number of voters that the members suffice for.
func (g *group) voters() int { return min(7, g.founders-1+g.founders%2) }

// kill kills the process of a member with SIGKILL.
func (g *group) kill(m *member) {
	g.noteUnexpected(m)
	if !m.running() {
		return
	}
	g.trace("kill -9 %s", m.name)
	for _, name := range g.ledBy(m) {
		g.trace("%s was the leader of %s", m.name, describeGroup(name))
		g.deaths = append(g.deaths, death{name, now()})
	}
	m.process.kill()
}

// terminate shuts a member down by SIGTERM.
func (g *group) terminate(m *member) {
	g.noteUnexpected(m)
	if !m.running() {
		return
	}
	g.trace("kill -TERM %s", m.name)
	m.process.expectEnd()
	m.process.signal(syscall.SIGTERM)
	select {
	case <-m.process.done:
	case <-time.After(closeLimit + 10*time.Second):
		g.spoiled = append(g.spoiled, fmt.Sprintf("%s: a shutdown by SIGTERM took longer than %v", m.name, closeLimit+10*time.Second))
		m.process.kill()
	}
}

// close shuts a member down gracefully.
func (g *group) close(m *member) {
	g.noteUnexpected(m)
	if m.running() && !m.process.end(doClose, closeLimit+10*time.Second) {
		g.spoiled = append(g.spoiled, fmt.Sprintf("%s: a graceful shutdown took longer than %v", m.name, closeLimit+10*time.Second))
	}
}

// noteUnexpected records as a violation that a member's process has ended by itself.
func (g *group) noteUnexpected(m *member) {
	if m.process == nil {
		return
	}
	if why := m.process.unexpected(); why != "" {
		g.spoiled = append(g.spoiled, fmt.Sprintf("%s stopped by itself: %s", m.name, why))
		m.process.expectEnd() // reported once
	}
}

func (g *group) freeze(m *member) {
	g.trace("stop %s", m.name)
	m.process.signal(syscall.SIGSTOP)
	m.frozen = true
}

func (g *group) thaw(m *member) {
	if m.frozen && m.running() {
		g.trace("continue %s", m.name)
		m.process.signal(syscall.SIGCONT)
	}
	m.frozen = false
}

// heal ends all faults: rules, stopped processes, processes that have ended.
func (g *group) heal() error {
	if err := g.network.heal(); err != nil {
		return err
	}
	for _, m := range g.members {
		g.thaw(m)
		if !m.joined {
			continue
		}
		if m.process != nil && !m.running() {
			g.noteUnexpected(m)
			g.trace("start %s", m.name)
			if err := g.start(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitHealthy waits until every member is open, all follow one leader in each group and, under
// load, each has completed an operation in each group that it called after the time since.
func (g *group) awaitHealthy(ctx context.Context, limit time.Duration, since int64) error {
	deadline := time.Now().Add(limit)
	for {
		why := g.ill(since)
		switch {
		case why == "":
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not healthy after %v: %s", limit, why)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return errors.Join(err, errors.New(why))
		}
	}
}

// ill returns why the group is not healthy, or "".
func (g *group) ill(since int64) string {
	for _, m := range g.members {
		if !m.joined {
			continue
		}
		if !m.running() {
			return m.name + " does not run: " + m.process.stopped()
		}
		if !m.isOpen() {
			return m.name + " is not open"
		}
		if s := m.process.last(); s.Time < since || s.ID == "" {
			return m.name + " reports no status"
		}
	}
	for _, name := range g.groups {
		if why := g.illGroup(name, since); why != "" {
			return why
		}
	}
	if n := g.voting(); n != g.voters() {
		return fmt.Sprintf("%d members vote, want %d", n, g.voters())
	}
	return ""
}

// voting returns how many of the running members are voters by their own account.
func (g *group) voting() (n int) {
	for _, m := range g.members {
		if m.joined && m.isOpen() && m.process.last().Voter {
			n++
		}
	}
	return n
}

// awaitOpen waits until a member is open.
func (g *group) awaitOpen(ctx context.Context, m *member, limit time.Duration) error {
	select {
	case <-m.process.opened:
		return nil
	case <-m.process.done:
		return fmt.Errorf("%s has stopped: %s", m.name, m.process.stopped())
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return fmt.Errorf("%s is not open after %v", m.name, limit)
	}
}

// restart starts a member again and waits until it is open.
func (g *group) restart(ctx context.Context, m *member) error {
	g.trace("start %s", m.name)
	if err := g.start(m); err != nil {
		return err
	}
	return g.awaitOpen(ctx, m, openLimit)
}

// run has the clients of all members run a phase, also those that start later.
func (g *group) run(dir, phase string) {
	g.phase = &order{Do: doRun, Dir: dir, Phase: phase}
	for _, m := range g.members {
		if m.running() {
			m.process.order(*g.phase)
		}
	}
}

// pause lets the clients finish their calls.
func (g *group) pause() error {
	g.phase = nil
	var pausing []*member
	var acknowledged []chan struct{}
	for _, m := range g.members {
		if !m.running() {
			continue
		}
		m.process.mu.Lock()
		acknowledged = append(acknowledged, m.process.paused)
		m.process.mu.Unlock()
		pausing = append(pausing, m)
		m.process.order(order{Do: doPause})
	}
	const limit = 30 * time.Second // longer than any call and hold
	deadline := time.After(limit)
	for i, m := range pausing {
		select {
		case <-acknowledged[i]:
		case <-m.process.done:
		case <-deadline:
			return fmt.Errorf("%s: the clients' calls have not ended after %v, although each has a deadline", m.name, limit)
		}
	}
	return nil
}

// end kills every process.
func (g *group) end() {
	for _, m := range g.members {
		if m.running() {
			m.process.kill()
		}
	}
}

// wait waits for a time, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
