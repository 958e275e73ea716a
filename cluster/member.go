package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/forming"
	"github.com/conclave-go/conclave/cluster/gossip"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/appcall"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// Config configures a member. The root has checked it.
type Config struct {
	Name      string
	Group     string
	Dir       string // "": in memory
	Small     bool   // see the root's Config
	Listener  net.Listener
	Advertise string
	Join      []string
	Expect    int
	Voters    int
	// LeaderPriority is this process's; see the root's Config.
	LeaderPriority int32

	TLS      *tls.Config
	Insecure bool
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Calls    *appcall.Calls // of the application's functions, for VerifyPeer, Dial and Listener
	// VerifyPeer refuses a connection by an error; nil: none. It returns when the connection
	// is closed. See the root's Config.
	VerifyPeer func(transport.Peer) error
	Heartbeat  time.Duration
	Election   time.Duration
	Logger     *slog.Logger
	Named      func(member uint64, name string) // reports the name of a member, for Logger; nil: ignored
	MaxCalls   int                              // pending calls of this process; urgent ones are not refused for it

	MaxCallBytes int // of the pending calls' commands

	LoadMachine func(state iter.Seq2[[]byte, []byte]) (Machine, error)
	// FirstState returns the state with which a new group begins at a feature level, alike on
	// all its founders.
	FirstState func(level uint32) []wire.Change
	// FirstStateOf returns that of a further group, alike on all its members.
	FirstStateOf func(*fact.GroupRecord) []wire.Change
	// UseGroup is called for each further group of which this member has a replica, before that starts.
	UseGroup func(number uint32) GroupUse
	Commands Commands
	Clients  clients.Handlers

	replica.Callbacks

	// Stopping is called once when the member begins to stop, before its connections close, by which others may take the
	// process for crashed. The error is that of Err. It may be called before Start has returned; nil: ignored.
	Stopping func(why error)

	// These run on the loop's goroutine likewise.

	RoleChanged func(RoleEvent) // nil: ignored
	// RedundancyChanged reports how many more voters may fail; negative: there is no quorum.
	RedundancyChanged func(voters int) // nil: ignored
	// LivenessChanged reports another member that the failure detector declares dead, and one that is alive again.
	LivenessChanged func(Peer) // nil: ignored

	// ListsChanged reports that what Status shows of the members, or what the machine shows of
	// sessions and checks, has changed, and the last index that was applied. It runs on any
	// goroutine, and must not block; nil: ignored.
	ListsChanged func(applied uint64)
}

// Member is one member of a group, running in this process: what a process has once, around its replica.
type Member struct {
	cfg       Config
	seams     Seams
	log       *slog.Logger
	identity  *identity.Identity
	store     *storage.Store
	raftLog   *raftlog.Log
	port      *transport.Transport
	gossip    *gossip.Gossip
	roster    *roster.Roster
	former    *forming.Former
	replica   *replica.Replica
	groups    *Groups
	snapshots replica.SnapshotTurns
	received  replica.ReceivedBytes
	budgets   *replica.Budgets // of the further groups

	connections *connections
	leaders     *leaderSpread
	removals    *Removals
	newcomers   *newcomers

	// Owned by the replica's loop.
	core       *core.Core
	membership *membership
	crashes    *crashReports
	registered bool // the group has accepted this process's registration
	clients    *clients.Server

	metrics  Metrics
	lifetime context.Context
	end      context.CancelCauseFunc
	// spreading is within lifetime, and done when the member begins to shut down: nothing moves leaders any more to spread them.
	spreading    context.Context
	endSpreading context.CancelFunc

	routines sync.WaitGroup
	done     chan struct{}
	err      error // set before done is closed
}

// Start opens the directory, forms the group if the directory belongs to none, and
// starts the loop. It does not wait for a leader. ctx bounds the forming, and the waiting for
// file descriptors that the process lacks.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	m := &Member{
		cfg:     cfg,
		seams:   SeamsFrom(ctx),
		log:     cfg.Logger,
		budgets: replica.NewBudgets(cfg.MaxCallBytes),
		done:    make(chan struct{}),
	}
	m.lifetime, m.end = context.WithCancelCause(context.Background())
	m.spreading, m.endSpreading = context.WithCancel(m.lifetime)
	if err := m.start(ctx); err != nil {
		m.end(err)
		m.tearDown()
		return nil, err
	}
	m.routine("supervisor", m.supervise)
	if m.seams.Started != nil {
		m.seams.Started(m)
	}
	return m, nil
}

func (m *Member) start(ctx context.Context) error {
	if err := m.openDisk(ctx); err != nil {
		m.cfg.Listener.Close()
		return err
	}
	if err := m.openPort(); err != nil {
		return err
	}
	if err := m.former.Find(ctx); err != nil {
		return err
	}
	if err := m.awaitOwnAddress(ctx); err != nil {
		return err
	}
	if err := m.startReplica(); err != nil {
		return err
	}
	return m.openGossip()
}

// routine starts a goroutine that tearDown waits for, named in profiles.
func (m *Member) routine(name string, run func()) {
	labels := pprof.Labels("conclave", fmt.Sprintf("%016x", m.identity.Member), "goroutine", name)
	m.routines.Go(func() { pprof.Do(m.lifetime, labels, func(context.Context) { run() }) })
}

// errClosed and errCrashed are the causes of lifetime's end after Stop and Crash.
var (
	errClosed  = errors.New("closed")
	errCrashed = fmt.Errorf("%w as by a crash", errClosed)
)

// supervise tears the member down when its lifetime ends.
func (m *Member) supervise() {
	<-m.lifetime.Done()
	// Done is closed by a goroutine that the wait below does not wait for.
	go func() {
		m.tearDown()
		m.err = m.cause()
		close(m.done)
	}()
}

// cause returns why the lifetime has ended; nil: by Stop or Crash.
func (m *Member) cause() error {
	if cause := context.Cause(m.lifetime); !errors.Is(cause, errClosed) {
		return cause
	}
	return nil
}

// tearDown stops everything, producers before consumers: gossip, the transport with its
// readers, the loop and the goroutines that work for it, and last the disk. The lifetime
// has ended, so no producer blocks on a consumer that has stopped.
func (m *Member) tearDown() {
	if m.cfg.Stopping != nil {
		m.cfg.Stopping(m.cause())
	}
	if m.gossip != nil {
		m.gossip.Close()
	}
	if m.port != nil {
		m.port.Close()
	}
	m.routines.Wait()
	if m.replica != nil {
		orderly := context.Cause(m.lifetime) == errClosed
		m.replica.Abandon()
		m.replica.Finish(orderly)
		m.groups.abandon(orderly)
	}
	if m.store != nil {
		if err := m.store.Close(); err != nil {
			m.log.Error("directory not closed", "dir", m.cfg.Dir, "error", err)
		}
	}
}

// Stop stops the member and waits until its goroutines have ended and its directory is
// closed. It may be called more than once, from any goroutine except the loop's.
func (m *Member) Stop() {
	m.end(errClosed)
	<-m.done
}

// Crash begins to stop the member, like Stop, and spares nothing that a crash would lose.
func (m *Member) Crash() { m.end(errCrashed) }

// Done is closed when the member has stopped, as after Stop.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err returns why the member stopped; nil after Stop. It is valid once Done is closed.
func (m *Member) Err() error { return m.err }

// fail stops the member. The first error is its cause.
func (m *Member) fail(err error) {
	if m.lifetime.Err() == nil {
		m.log.Error("member stopped", "error", err)
	}
	m.end(err)
}

// openDisk opens the directory. A shortage of the process is waited out until ctx is done,
// and later until the member's lifetime ends.
func (m *Member) openDisk(ctx context.Context) error {
	patient, giveUp := context.WithCancel(m.lifetime)
	opened := context.AfterFunc(ctx, giveUp)
	err := m.readDisk(patient.Done())
	if !opened() {
		err = cmp.Or(err, context.Cause(ctx))
	}
	return err
}

func (m *Member) readDisk(giveUp <-chan struct{}) error {
	store, err := storage.Open(storage.Options{
		Dir: m.cfg.Dir, FS: m.seams.FS, Logger: m.log, MemTableSize: cmp.Or(m.seams.TableBytes, m.cfg.tableBytes()), GiveUp: giveUp,
	})
	if err != nil {
		return err
	}
	m.store = store
	if m.raftLog, err = raftlog.Open(store); err != nil {
		return err
	}
	if err := replica.CheckDivergence(m.raftLog); err != nil {
		return err
	}
	if m.identity, err = identity.Load(m.raftLog, m.cfg.Group); err != nil {
		return err
	}
	if m.roster, err = roster.Load(m.raftLog, m.meta(), func() []byte { return m.identity.Get().GetCluster() }); err != nil {
		return err
	}
	m.roster.ReportNames(m.cfg.Named)
	m.replica = replica.New(m.replicaConfig())
	m.metrics.Metrics = m.replica.Metrics()
	m.groups = newGroups(m.groupsConfig())
	m.roster.Listed = m.listsChanged
	if err := m.groups.open(); err != nil {
		return err
	}
	return m.checkMeta()
}

// checkMeta returns an error if the meta data will be too long for gossip, which starts
// once the member has a cluster.
func (m *Member) checkMeta() error {
	member := m.meta()
	member.Cluster = make([]byte, len(wire.ID{}))
	_, err := gossip.EncodeMeta(member)
	return err
}

// BeginShutdown notes that this member is about to stop or to leave: the leaderships that it transfers from now on are those that a
// shutdown transfers.
func (m *Member) BeginShutdown() { m.endSpreading() }

// AnnounceShutdown announces by gossip that this process stops, so that the failure
// detector reports it at once. It blocks for a fraction of a second.
func (m *Member) AnnounceShutdown() { m.gossip.AnnounceShutdown() }

// stopped returns ErrStopped with the cause.
func (m *Member) stopped() error {
	if cause := context.Cause(m.lifetime); cause != nil && !errors.Is(cause, errClosed) {
		return fmt.Errorf("%w: %w", ErrStopped, cause)
	}
	return ErrStopped
}

// What a small member gives up is room for bursts: tables in memory that absorb writes while a
// flush is slow, and entries that spare a lagging member a snapshot.
const (
	smallTable   = 1 << 20 // bytes; a log takes a tenth more
	smallEntries = 2000
)

// tableBytes returns the size of the database's tables in memory; 0: the default.
func (c *Config) tableBytes() uint64 {
	if c.Small {
		return smallTable
	}
	return 0
}

// keepEntries returns how many applied entries the member keeps in its log; 0: the default.
func (c *Config) keepEntries() uint64 {
	if c.Small {
		return smallEntries
	}
	return 0
}
