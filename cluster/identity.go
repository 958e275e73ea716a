package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// identity is this member's identity record, in memory and on disk. Callers of save
// must exclude each other.
type identity struct {
	log         *raftlog.Log
	record      atomic.Pointer[wire.Identity]
	member      uint64
	incarnation wire.ID // of this process; not on disk
}

const identityRecord = "identity"

// loadIdentity reads the identity of a directory, or creates one in an empty directory,
// and increments the boot counter. The counter is durable before it is sent to another
// member, so the others detect a copied or rolled back directory by a counter that they
// have seen before.
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
	case r.GetRemoved():
		return nil, ErrRemoved
	case r.GetGroup() != group:
		return nil, fmt.Errorf("directory belongs to group %q (want %q): set Config.Group or use another Dir", r.GetGroup(), group)
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

// save changes the identity on disk, and then in memory.
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

// cluster returns the member's cluster; zero: none yet.
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

// newRand returns the core's source of random numbers, which differs between
// processes.
func newRand(incarnation wire.ID) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(
		binary.BigEndian.Uint64(incarnation[:8]), binary.BigEndian.Uint64(incarnation[8:])))
}
