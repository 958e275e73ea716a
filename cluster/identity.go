package cluster

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// identity is this member's identity record, in memory and on disk.
//
// A member is its key: the fingerprint of the public key is the member's ID, and each
// connection proves the possession of the private one.
type identity struct {
	log         *raftlog.Log
	saving      wait.Lock // held from a change of the record until it is on disk
	record      atomic.Pointer[wire.Identity]
	member      uint64
	key         ed25519.PrivateKey
	tokens      [][]byte // as of this start; the last one is this process's
	incarnation wire.ID  // of this process; not on disk
}

const identityRecord = "identity"

// loadIdentity reads the identity of a directory, or creates one with a new key in an
// empty directory, increments the boot counter and adds a succession token. All three are
// durable before they are used on a connection: the group must not record a key that a
// power loss destroys, and detects a copied or rolled back directory by a counter that it
// has seen.
func loadIdentity(log *raftlog.Log, group string) (*identity, error) {
	data, err := log.Local(identityRecord)
	if err != nil {
		return nil, err
	}
	record := newIdentityRecord(group)
	if data != nil {
		if record, err = parseIdentity(data, group); err != nil {
			return nil, err
		}
	}
	id := &identity{
		log: log, member: record.GetMember(), incarnation: randomID(),
		key: ed25519.NewKeyFromSeed(record.GetKey()),
	}
	id.record.Store(record)
	err = id.save(func(r *wire.Identity) {
		r.Boot++
		addToken(r)
	})
	id.tokens = id.get().GetTokens()
	return id, err
}

// newIdentityRecord generates the key of a new member.
func newIdentityRecord(group string) *wire.Identity {
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

// parseIdentity returns the identity of a member that may start with the group's name.
func parseIdentity(data []byte, group string) (*wire.Identity, error) {
	r, err := decodeIdentity(data)
	switch {
	case err != nil:
		return nil, err
	case r.GetRemoved():
		return nil, ErrRemoved
	case r.GetGroup() != group:
		return nil, fmt.Errorf("directory belongs to group %q (want %q): set Config.Group or use another Dir", r.GetGroup(), group)
	}
	return r, checkKey(r)
}

func decodeIdentity(data []byte) (*wire.Identity, error) {
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

// checkKey checks that a record has the key of its member.
func checkKey(r *wire.Identity) error {
	switch {
	case len(r.GetKey()) != ed25519.SeedSize:
		return fmt.Errorf("%w: the member's key has %d bytes, want %d", storage.ErrCorrupt, len(r.GetKey()), ed25519.SeedSize)
	case r.GetMember() != memberOf(r.GetKey()):
		return fmt.Errorf("%w: the member's identity names member %v and holds the key of member %v",
			storage.ErrCorrupt, wire.MemberID(r.GetMember()), wire.MemberID(memberOf(r.GetKey())))
	}
	return nil
}

// save changes the identity on disk, and then in memory.
func (id *identity) save(change func(*wire.Identity)) error {
	id.saving.Acquire()
	defer id.saving.Release()
	next := proto.CloneOf(id.get())
	change(next)
	next.Version = identityVersion(next)
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

// identityVersion returns the version of a record: the lowest of which each build heeds what it says.
func identityVersion(r *wire.Identity) uint32 {
	if r.GetAccepted().GetFeatureLevel() > 0 {
		return wire.IdentityVersion
	}
	return wire.IdentityBase
}

// public returns the member's public key.
func (id *identity) public() ed25519.PublicKey { return publicKey(id.key) }

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

// newRand returns the core's source of random numbers, which differs between
// processes.
func newRand(incarnation wire.ID) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(
		binary.BigEndian.Uint64(incarnation[:8]), binary.BigEndian.Uint64(incarnation[8:])))
}
