// Package identity is a member's identity: its key, its boot counter, the succession of its processes, and the
// endorsements with which members that do not know it accept it.
//
// It is a seam, not an API: only package cluster uses it.
package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// Identity is this member's identity record, in memory and on disk.
//
// A member is its key: the fingerprint of the public key is the member's ID, and each
// connection proves the possession of the private one.
type Identity struct {
	log    *raftlog.Log
	saving wait.Lock // held from a change of the record until it is on disk
	record atomic.Pointer[wire.Identity]

	// These never change.

	Member      uint64
	Key         ed25519.PrivateKey
	Tokens      [][]byte // at this start; the last one is this process's
	Incarnation wire.ID  // of this process; not on disk
}

// Record is the name of the record on disk.
const Record = "identity"

// ErrRemoved: the directory's member has been removed from its group.
var ErrRemoved = errors.New("its directory cannot be used again: " +
	"to join the group as a new member, start with an empty one")

// Load reads the identity of a directory, or creates one with a new key in an
// empty directory, increments the boot counter and adds a succession token. All three are
// durable before they are used on a connection: the group must not record a key that a
// power loss destroys, and detects a copied or rolled back directory by a counter that it
// has seen.
func Load(log *raftlog.Log, group string) (*Identity, error) {
	data, err := log.Local(Record)
	if err != nil {
		return nil, err
	}
	record := NewRecord(group)
	if data != nil {
		if record, err = parse(data, group); err != nil {
			return nil, err
		}
	}
	id := &Identity{
		log: log, Member: record.GetMember(), Incarnation: RandomID(),
		Key: ed25519.NewKeyFromSeed(record.GetKey()),
	}
	id.record.Store(record)
	err = id.Save(func(r *wire.Identity) {
		r.Boot++
		addToken(r)
	})
	id.Tokens = id.Get().GetTokens()
	return id, err
}

// NewRecord generates the key of a new member.
func NewRecord(group string) *wire.Identity {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails
	return &wire.Identity{Version: wire.IdentityBase, Group: group, Key: seed, Member: memberOf(seed)}
}

// memberOf returns the member ID of the key with that seed.
func memberOf(seed []byte) uint64 {
	return wire.FingerprintOf(publicKey(ed25519.NewKeyFromSeed(seed)))
}

func publicKey(key ed25519.PrivateKey) ed25519.PublicKey {
	return key.Public().(ed25519.PublicKey) // always of that type
}

// FounderOf returns the member of an identity record as a group records it.
func FounderOf(r *wire.Identity) fact.MemberRecord {
	return fact.MemberRecord{ID: r.GetMember(), Key: publicKey(ed25519.NewKeyFromSeed(r.GetKey()))}
}

// parse returns the identity of a member that may start with the group's name.
func parse(data []byte, group string) (*wire.Identity, error) {
	r, err := Decode(data)
	switch {
	case err != nil:
		return nil, err
	case r.GetRemoved():
		return nil, ErrRemoved
	case r.GetGroup() != group:
		return nil, fmt.Errorf("directory belongs to group %q (want %q): set Config.Group or use another Dir", r.GetGroup(), group)
	}
	return r, CheckKey(r)
}

// Decode decodes a record, and checks its version.
func Decode(data []byte) (*wire.Identity, error) {
	r := new(wire.Identity)
	if err := proto.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w: the member's identity: %v", storage.ErrCorrupt, err)
	}
	switch {
	case r.GetVersion() > identityVersion(r):
		return nil, fmt.Errorf("%w: identity of version %d", storage.ErrNewer, r.GetVersion())
	case r.GetVersion() == 0:
		return nil, fmt.Errorf("%w: the member's identity has no version", storage.ErrCorrupt)
	case r.GetVersion() < wire.IdentityBase:
		return nil, fmt.Errorf("directory was written by a build from before the first release, whose members had no keys "+
			"(identity of version %d, want %d): this build cannot read it", r.GetVersion(), wire.IdentityBase)
	}
	return r, nil
}

// CheckKey checks that a record has the key of its member.
func CheckKey(r *wire.Identity) error {
	switch {
	case len(r.GetKey()) != ed25519.SeedSize:
		return fmt.Errorf("%w: the member's key has %d bytes, want %d", storage.ErrCorrupt, len(r.GetKey()), ed25519.SeedSize)
	case r.GetMember() != memberOf(r.GetKey()):
		return fmt.Errorf("%w: the member's identity names member %v and holds the key of member %v",
			storage.ErrCorrupt, wire.MemberID(r.GetMember()), wire.MemberID(memberOf(r.GetKey())))
	}
	return nil
}

// Save changes the identity on disk, and then in memory.
func (id *Identity) Save(change func(*wire.Identity)) error {
	id.saving.Acquire()
	defer id.saving.Release()
	next := proto.CloneOf(id.Get())
	change(next)
	next.Version = identityVersion(next)
	data, err := proto.Marshal(next)
	if err != nil {
		return err
	}
	if err := id.log.SetLocal(Record, data); err != nil {
		return err
	}
	id.record.Store(next)
	return nil
}

// identityVersion returns the version of a record: the lowest of which each build heeds what it says.
func identityVersion(r *wire.Identity) uint32 {
	if r.GetAccepted().GetFeatureLevel() > 0 {
		return wire.IdentityVersion
	}
	return wire.IdentityBase
}

// Public returns the member's public key.
func (id *Identity) Public() ed25519.PublicKey { return publicKey(id.Key) }

// Get returns the record, which must not be changed.
func (id *Identity) Get() *wire.Identity { return id.record.Load() }

// Cluster returns the member's cluster; zero: none yet.
func (id *Identity) Cluster() wire.ID {
	cluster, _ := wire.IDFrom(id.Get().GetCluster())
	return cluster
}

// RandomID returns a random ID.
func RandomID() wire.ID {
	var id wire.ID
	rand.Read(id[:]) // never fails
	return id
}
