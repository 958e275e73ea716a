//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-go/conclave"
)

// order is a line that the tool writes to a member's standard input.
type order struct {
	Do    string `json:"do"`
	Dir   string `json:"dir,omitempty"`   // of histories
	Phase string `json:"phase,omitempty"` // prefix of all names
	ID    string `json:"id,omitempty"`    // of the member to remove
}

const (
	doRun    = "run"    // start the clients
	doPause  = "pause"  // let the clients finish their calls, then stop them
	doClose  = "close"  // shut down gracefully
	doLeave  = "leave"  // leave the group
	doRemove = "remove" // remove another member from the group
	doShards = "shards" // read the owners of the settled set
	doCreate = "create" // create the further groups
)

// notice is a line that a member writes to its standard output.
type notice struct {
	What  string `json:"what"`
	Error string `json:"error,omitempty"`
	Time  int64  `json:"t,omitempty"` // of the status
	ID    string `json:"id,omitempty"`
	Voter bool   `json:"voter,omitempty"`
	Knows int    `json:"knows,omitempty"`

	Groups map[string]groupStatus `json:"groups,omitempty"` // those that a run has all the time

	Shards []shardState `json:"shards,omitempty"` // the result of doShards
}

const (
	isOpen    = "open"
	isStatus  = "status"
	isPaused  = "paused"
	isStopped = "stopped"
	isRemoved = "removed" // the result of doRemove
	isShards  = "shards"
	isCreated = "created" // the result of doCreate
)

const (
	statusInterval = 200 * time.Millisecond
	sessionTTL     = 3 * time.Second
	closeLimit     = 10 * time.Second
	replaceAfter   = 5 * time.Second // the shortest
)

// memberProcess is a process that runs one member and its clients.
type memberProcess struct {
	config   conclave.Config
	clients  int
	groups   []string // those that a run has all the time
	rate     float64  // operations per second of this member's clients
	seed     uint64
	resource string
	name     string // unique for each start

	output sync.Mutex // of standard output

	progress progress

	mu   sync.Mutex
	load *load // guarded by mu; nil while paused
}

// memberMain runs a member until it is told to stop, or stops by itself.
func memberMain(args []string) int {
	m := &memberProcess{}
	var join, logFile string
	flags := flag.NewFlagSet(modeMember, flag.ExitOnError)
	flags.StringVar(&m.name, "name", "", "")
	flags.StringVar(&m.config.Dir, "dir", "", "")
	flags.StringVar(&m.config.Bind, "bind", "", "")
	flags.StringVar(&join, "join", "", "")
	flags.IntVar(&m.config.Expect, "expect", 0, "")
	flags.IntVar(&m.config.Voters, "voters", 3, "")
	flags.IntVar(&m.clients, "clients", 0, "")
	groups := flags.Int("groups", 1, "")
	flags.Float64Var(&m.rate, "rate", 0, "")
	flags.Uint64Var(&m.seed, "seed", 0, "")
	flags.StringVar(&m.resource, "resource", "", "")
	flags.StringVar(&logFile, "log", "", "")
	_ = flags.Parse(args) // exits on an error
	m.groups = groupNames(*groups)
	m.config.Join = strings.Split(join, ",")
	m.config.Name, _, _ = strings.Cut(m.name, ".") // it stays, so that the next start finds the shards of this one
	m.config.Insecure = true                       // the namespaces of the tool have no other processes
	m.config.SessionTTL = sessionTTL
	log, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return m.stop(err)
	}
	m.config.Logger = slog.New(slog.NewTextHandler(log, nil))
	return m.stop(m.run())
}

// stop reports why the member has stopped, and returns the exit status.
func (m *memberProcess) stop(err error) int {
	if err == nil {
		m.say(notice{What: isStopped})
		return 0
	}
	m.say(notice{What: isStopped, Error: err.Error()})
	return exitStopped
}

// exitStopped is the exit status of a member that stopped by itself, or was refused.
const exitStopped = 3

func (m *memberProcess) run() error {
	orders := make(chan order)
	go m.listen(orders)
	go m.listenSignals(orders)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type opened struct {
		node *conclave.Node
		err  error
	}
	opening := make(chan opened, 1)
	go func() {
		node, err := conclave.Open(ctx, &m.config)
		opening <- opened{node, err}
	}()
	var run *order
	for {
		select {
		case o := <-opening:
			if o.err != nil {
				return o.err
			}
			m.say(notice{What: isOpen})
			go m.configure(o.node)
			if run != nil {
				m.begin(o.node, *run)
			}
			return m.serve(o.node, orders)
		case o := <-orders:
			switch o.Do {
			case doRun:
				run = &o
			case doPause:
				run = nil
				m.say(notice{What: isPaused})
			default: // while it opens there is nothing to release
				return nil
			}
		}
	}
}

// listen reads orders. A closed input is the order to close.
func (m *memberProcess) listen(orders chan<- order) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if json.Unmarshal(lines.Bytes(), &o) == nil {
			orders <- o
		}
	}
	orders <- order{Do: doClose}
}

// listenSignals takes SIGTERM as the order to close.
func (m *memberProcess) listenSignals(orders chan<- order) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	orders <- order{Do: doClose}
}

func (m *memberProcess) serve(node *conclave.Node, orders <-chan order) error {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-node.Done():
			return fmt.Errorf("the node has stopped: %w", node.Err())
		case <-tick.C:
			m.say(m.status(node))
		case o := <-orders:
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			switch o.Do {
			case doRun:
				m.begin(node, o)
			case doPause:
				go m.pause()
			case doRemove:
				go m.remove(node, o.ID)
			case doShards:
				go m.readShards(node, o.Phase)
			case doCreate:
				go m.createGroups(node)
			case doClose:
				return node.Close(ctx) // the clients' calls fail, as in a program that ends
			case doLeave:
				return node.Leave(ctx)
			}
		}
	}
}

// configure has the group replace silent voters as soon as it may be told to: a
// nemesis does not last for minutes. Every member asks for the same.
func (m *memberProcess) configure(node *conclave.Node) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	c, err := node.GroupConfig(ctx)
	if err == nil && c.ReplaceAfter != replaceAfter {
		c.ReplaceAfter = replaceAfter
		err = node.SetGroupConfig(ctx, c)
	}
	if err != nil {
		m.config.Logger.Warn("cannot configure the group", "error", err) // the next start tries again
	}
}

// remove removes another member and reports the result.
func (m *memberProcess) remove(node *conclave.Node, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var id conclave.MemberID
	err := id.UnmarshalText([]byte(text))
	if err == nil {
		err = node.RemoveMember(ctx, id)
	}
	n := notice{What: isRemoved}
	if err != nil {
		n.Error = err.Error()
	}
	m.say(n)
}

func (m *memberProcess) status(node *conclave.Node) notice {
	s := node.Status()
	return notice{
		What: isStatus, Time: now(), ID: s.ID.String(), Voter: s.Role == conclave.Voter, Knows: len(s.Members), Groups: m.groupStatuses(node),
	}
}

func (m *memberProcess) say(n notice) {
	m.output.Lock()
	defer m.output.Unlock()
	line, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has plain fields only
	}
	_, _ = os.Stdout.Write(append(line, '\n')) // without the tool there is no reader
}

// begin starts the clients with a new history.
func (m *memberProcess) begin(node *conclave.Node, o order) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.load != nil {
		return
	}
	file, err := os.OpenFile(filepath.Join(o.Dir, m.name+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		m.fail(err)
		return
	}
	m.load = startLoad(node, m, o.Phase, file)
}

// pause stops the clients after their current calls.
func (m *memberProcess) pause() {
	m.mu.Lock()
	l := m.load
	m.load = nil
	m.mu.Unlock()
	if l != nil {
		l.stop()
	}
	m.say(notice{What: isPaused})
}

// fail ends the process: without a history it is of no use.
func (m *memberProcess) fail(err error) {
	os.Exit(m.stop(errors.Join(errors.New("the clients failed"), err)))
}
