package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// identity is who this member is. What is on disk changes only together with
// what is in memory, through save; its callers keep out of each other's way.
type identity struct {
	log         *raftlog.Log
	record      atomic.Pointer[wire.Identity]
	member      uint64
	incarnation wire.ID // of this process; not kept
}

const identityRecord = "identity"

// ErrLeft says that the directory's member has left its group for good.
var ErrLeft = errors.New("the member has left its group")

// loadIdentity reads the identity of a directory, or mints one for an empty
// directory, and counts this start. The count is durable before anybody hears
// it: a directory that was copied or rolled back gives itself away by a count
// that the others know already.
func loadIdentity(log *raftlog.Log, group string) (*identity, error) {
	record := &wire.Identity{Version: wire.IdentityVersion, Group: group}
	data, err := log.Local(identityRecord)
	if err != nil {
		return nil, err
	}
	if data != nil {
		if err := proto.Unmarshal(data, record); err != nil {
			return nil, fmt.Errorf("%w: the member's identity: %v", storage.ErrCorrupt, err)
		}
	}
	switch r := record; {
	case r.GetVersion() > wire.IdentityVersion:
		return nil, fmt.Errorf("%w: identity of version %d", storage.ErrNewer, r.GetVersion())
	case r.GetLeft():
		return nil, fmt.Errorf("%w: start with an empty directory, as a new member", ErrLeft)
	case r.GetGroup() != group:
		return nil, fmt.Errorf("the directory belongs to a member of group %q, not %q: use another directory, or that group", r.GetGroup(), group)
	case data != nil && r.GetMember() == 0:
		return nil, fmt.Errorf("%w: the member's identity names no member", storage.ErrCorrupt)
	}
	for record.GetMember() == 0 {
		record.Member = randomUint64()
	}
	id := &identity{log: log, member: record.GetMember(), incarnation: randomID()}
	id.record.Store(record)
	return id, id.save(func(r *wire.Identity) { r.Boot++ })
}

// save changes the identity, on disk first.
func (id *identity) save(change func(*wire.Identity)) error {
	next := proto.CloneOf(id.get())
	change(next)
	data, err := proto.Marshal(next)
	if err != nil {
		return err
	}
	if err := id.log.SetLocal(identityRecord, data); err != nil {
		return err
	}
	id.record.Store(next)
	return nil
}

func (id *identity) get() *wire.Identity { return id.record.Load() }

// cluster is the cluster that the member belongs to; zero is none yet.
func (id *identity) cluster() wire.ID {
	cluster, _ := wire.IDFrom(id.get().GetCluster())
	return cluster
}

func randomID() wire.ID {
	var id wire.ID
	rand.Read(id[:]) // never fails
	return id
}

func randomUint64() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// newRand gives the core its dice: different in each process, and chosen by
// the driver, so that a simulation repeats.
func newRand(incarnation wire.ID) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(
		binary.BigEndian.Uint64(incarnation[:8]), binary.BigEndian.Uint64(incarnation[8:])))
}
