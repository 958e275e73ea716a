package conclavegoose_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/conclavegoose"
)

const name = "migrations"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive waits for an event.
func receive[E any](t *testing.T, events <-chan E, what string) E {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(time.Minute):
		t.Fatalf("no event within a minute: %s", what)
		panic("unreachable")
	}
}

// process is one that runs the migration of a database.
type process struct {
	*goose.Provider
	locker  *conclavegoose.Locker
	running chan context.Context // the context of the migration, each time that it runs
	proceed chan struct{}        // lets it end
}

func newProcess(t *testing.T, path string, locks conclave.Locks) *process {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	p := &process{
		locker: conclavegoose.New(locks, name), running: make(chan context.Context, 10), proceed: make(chan struct{}),
	}
	migration := goose.NewGoMigration(1, &goose.GoFunc{RunTx: p.migrate}, nil)
	p.Provider, err = goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithGoMigrations(migration), goose.WithLocker(p.locker),
		goose.WithDisableGlobalRegistry(true))
	must(t, err)
	return p
}

func (p *process) migrate(ctx context.Context, tx *sql.Tx) error {
	p.running <- ctx
	select {
	case <-p.proceed:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := tx.ExecContext(ctx, "CREATE TABLE invoices (id INTEGER)")
	return err
}

type outcome struct {
	applied int
	err     error
}

// up runs the migrations in the background.
func (p *process) up(ctx context.Context) <-chan outcome {
	result := make(chan outcome, 1)
	go func() {
		ctx, done := p.locker.CancelOnLoss(ctx)
		defer done()
		applied, err := p.Up(ctx)
		result <- outcome{len(applied), err}
	}()
	return result
}

// awaitWaiter waits until a process is queued for the lock, which nothing signals.
func awaitWaiter(t *testing.T, node *conclave.Node) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := node.FencedLock(name).Info(t.Context())
		must(t, err)
		if info.Waiters > 0 {
			return
		}
		receive(t, tick.C, "tick")
	}
}

func TestLocker_MigratesOnce(t *testing.T) {
	group := conclavetest.Start(t, 3)
	path := filepath.Join(t.TempDir(), "db")
	a, b := newProcess(t, path, group.Node(0)), newProcess(t, path, group.Node(1))
	first := a.up(t.Context())
	receive(t, a.running, "migration on a")
	if f, err := a.locker.Fence(); err != nil || f == 0 {
		t.Errorf("fence %v, %v", f, err)
	}
	second := b.up(t.Context())
	awaitWaiter(t, group.Node(2))
	close(a.proceed)
	if o := receive(t, first, "end of Up on a"); o.applied != 1 || o.err != nil {
		t.Errorf("a: %+v, want 1 migration", o)
	}
	if o := receive(t, second, "end of Up on b"); o.applied != 0 || o.err != nil {
		t.Errorf("b: %+v, want no migration", o)
	}
	if _, err := a.locker.Fence(); !errors.Is(err, conclave.ErrNotHeld) {
		t.Errorf("Fence after Up: %v, want ErrNotHeld", err)
	}
}

func TestLocker_CancelledDuringMigration(t *testing.T) {
	group := conclavetest.Start(t, 3)
	path := filepath.Join(t.TempDir(), "db")
	a, b := newProcess(t, path, group.Node(0)), newProcess(t, path, group.Node(1))
	ctx, cancel := context.WithCancel(t.Context())
	first := a.up(ctx)
	receive(t, a.running, "migration on a")
	cancel()
	if o := receive(t, first, "end of Up on a"); !errors.Is(o.err, context.Canceled) {
		t.Errorf("a: %+v, want Canceled", o)
	}
	close(b.proceed)
	if o := receive(t, b.up(t.Context()), "end of Up on b"); o.applied != 1 || o.err != nil {
		t.Errorf("b: %+v, want 1 migration", o)
	}
}

func TestLocker_CancelledWhileWaiting(t *testing.T) {
	group := conclavetest.Start(t, 3)
	path := filepath.Join(t.TempDir(), "db")
	a, b := newProcess(t, path, group.Node(0)), newProcess(t, path, group.Node(1))
	first := a.up(t.Context())
	receive(t, a.running, "migration on a")
	ctx, cancel := context.WithCancel(t.Context())
	second := b.up(ctx)
	awaitWaiter(t, group.Node(2))
	cancel()
	if o := receive(t, second, "end of Up on b"); !errors.Is(o.err, context.Canceled) {
		t.Errorf("b: %+v, want Canceled", o)
	}
	close(a.proceed)
	if o := receive(t, first, "end of Up on a"); o.applied != 1 || o.err != nil {
		t.Errorf("a: %+v, want 1 migration", o)
	}
}

func TestLocker_LossCancelsMigration(t *testing.T) {
	group := conclavetest.Start(t, 3)
	path := filepath.Join(t.TempDir(), "db")
	a, b := newProcess(t, path, group.Node(0)), newProcess(t, path, group.Node(1))
	first := a.up(t.Context())
	ctx := receive(t, a.running, "migration on a")
	former, err := a.locker.Fence()
	must(t, err)
	group.Partition([]int{0})
	receive(t, ctx.Done(), "cancellation of the migration on a")
	if cause := context.Cause(ctx); !errors.Is(cause, conclave.ErrLockOwnershipLost) {
		t.Errorf("cancelled because of %v, want ErrLockOwnershipLost", cause)
	}
	o := receive(t, first, "end of Up on a")
	if o.applied != 0 || !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, conclave.ErrLockOwnershipLost) {
		t.Errorf("a: %+v, want Canceled and ErrLockOwnershipLost", o)
	}

	second := b.up(t.Context()) // granted after the TTL
	receive(t, b.running, "migration on b")
	if f, err := b.locker.Fence(); err != nil || f <= former {
		t.Errorf("fence %v after %v, %v", f, former, err)
	}
	close(b.proceed)
	if o := receive(t, second, "end of Up on b"); o.applied != 1 || o.err != nil {
		t.Errorf("b: %+v, want 1 migration", o)
	}
	group.Heal()
	if o := receive(t, a.up(t.Context()), "end of Up on a"); o.applied != 0 || o.err != nil { // the Locker is usable again
		t.Errorf("a: %+v, want no migration", o)
	}
}
