package conclave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// maxBackups bounds the backups that clients read at a time: while one does, the database keeps what
// it would otherwise discard. Those of the node's own program do not count.
const maxBackups = 4

// errSharedBackups ends a backup in favor of another client.
var errSharedBackups = fmt.Errorf("%w: other clients need a part of the %d backups that this member serves at a time", ErrBusy, maxBackups)

// backups are those that clients read. Hosts share them, and clients of one host: when there
// are as many as may be, a client of another one than the host that has the most ends the latest
// backup of that host. So a client may read all of them, and keeps no other client waiting.
type backups struct {
	mu      sync.Mutex
	reading []*reading // guarded by mu; from the earliest
}

// reading is a backup that a client reads.
type reading struct {
	client  uint64
	host    string
	request uint64 // of the client
	credit  *credit
	end     context.CancelCauseFunc
}

// begin begins a backup; false: there are as many as may be.
func (b *backups) begin(r *reading) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.reading) >= maxBackups {
		victim := b.victim(r)
		if victim < 0 {
			return false
		}
		b.reading[victim].end(errSharedBackups)
		b.reading = slices.Delete(b.reading, victim, victim+1)
	}
	b.reading = append(b.reading, r)
	return true
}

// victim returns the backup that ends in favor of another one, -1: none. It is called with
// mu held.
func (b *backups) victim(next *reading) int {
	byHost := func(r *reading) any { return r.host }
	byClient := func(r *reading) any { return r.client }
	if i := b.excess(next, byHost, func(*reading) bool { return true }); i >= 0 {
		return i
	}
	return b.excess(next, byClient, func(r *reading) bool { return r.host == next.host })
}

// excess returns the latest backup of those that have the most of the relevant ones, if they
// still have no fewer than those of next afterwards; -1: none.
func (b *backups) excess(next *reading, owner func(*reading) any, relevant func(*reading) bool) int {
	count := map[any]int{owner(next): 1}
	for _, r := range b.reading {
		if relevant(r) {
			count[owner(r)]++
		}
	}
	latest := -1
	for i, r := range b.reading {
		if relevant(r) && (latest < 0 || count[owner(r)] >= count[owner(b.reading[latest])]) {
			latest = i
		}
	}
	if latest < 0 || count[owner(b.reading[latest])] <= count[owner(next)] {
		return -1
	}
	return latest
}

func (b *backups) end(r *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = slices.DeleteFunc(b.reading, func(o *reading) bool { return o == r })
}

// giveCredit has the backup of a request go on. There may be none any more.
func (b *backups) giveCredit(client, request uint64, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.reading {
		if r.client == client && r.request == request {
			r.credit.give(bytes)
		}
	}
}

func (n *Node) giveCredit(r *wire.Request, answer clients.Answer) error {
	var body remote.CreditBody
	if err := json.Unmarshal(r.GetBody(), &body); err != nil {
		return fmt.Errorf("%w request: %w", ErrInvalid, err)
	}
	client, _ := answer.Client()
	n.backups.giveCredit(client, body.Request, body.Bytes)
	return nil
}

func (s served) backUp(ctx context.Context, request *wire.Request, answer clients.Answer) error {
	n := s.node
	credit, err := newCredit(request.GetBody())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &reading{request: request.GetId(), credit: credit, end: cancel}
	r.client, r.host = answer.Client()
	if !n.backups.begin(r) {
		return fmt.Errorf("%w: clients read %d backups from this member already", ErrBusy, maxBackups)
	}
	defer n.backups.end(r)
	err = s.group.Backup(ctx, creditWriter{ctx, answer.Within(ctx), credit})
	if errors.Is(context.Cause(ctx), errSharedBackups) {
		return errSharedBackups
	}
	return err
}
