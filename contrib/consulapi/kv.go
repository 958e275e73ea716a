package consulapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/conclave-go/conclave"
)

// kvPair is a key as Consul's API has it.
type kvPair struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

func pairOf(e conclave.Entry) kvPair {
	p := kvPair{
		LockIndex: e.LockIndex, Key: e.Key, Flags: e.Flags, Value: e.Value,
		CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex,
	}
	if e.Session != (conclave.SessionID{}) {
		p.Session = e.Session.String()
	}
	return p
}

// kvGet reads one key, or lists.
func (c *call) kvGet(key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	recurse := c.query.Has("recurse") // of any value, as in Consul: rs-consul sends "false" with its reads, and takes a list
	names, err := c.flag("keys")
	if err != nil {
		return err
	}
	raw, err := c.flag("raw")
	switch {
	case err != nil:
		return err
	case raw && (names || recurse):
		return invalid("raw is for a single key")
	case !names && (c.query.Has("separator") || c.query.Has("seperator")):
		return invalid("a separator is for keys")
	case names:
		return c.kvKeys(key)
	case recurse:
		return c.kvList(key)
	case key == "":
		return invalid("Missing key name")
	}
	return c.kvOne(key, raw)
}

func (c *call) kvOne(key string, raw bool) error {
	local, err := c.await("key/"+key, key, func(changed string) bool { return changed == key })
	if err != nil {
		return err
	}
	return c.gathered(func() error { return c.kvRead(key, raw, local) })
}

// kvRead reads one key. The state at hand is not older than the request if local.
func (c *call) kvRead(key string, raw, local bool) error {
	ctx, cancel := c.patience()
	defer cancel()
	index, err := c.lastIndex(ctx, local)
	if err != nil {
		return err
	}
	e, err := c.group.KV().Get(ctx, key, conclave.Stale())
	if err != nil && !errors.Is(err, conclave.ErrKeyNotFound) {
		return err
	}
	if err != nil {
		c.meta(index)
		return c.write(http.StatusNotFound, "", nil)
	}
	c.meta(e.ModifyIndex) // as in Consul; libraries such as libkv and valkeyrie use it as ?cas
	if raw {
		return c.write(http.StatusOK, "text/plain", e.Value)
	}
	return c.answer([]kvPair{pairOf(e)})
}

// lastIndex returns the index of the last change of any key. A read of the node's own state
// that follows sees a state that is not older. So a linearizable index, confirmed by a
// quorum once, makes that read linearizable too. The index of a list is the larger of it and the
// largest modify index of what is read: the state has all changes up to that one as well.
func (c *call) lastIndex(ctx context.Context, local bool) (uint64, error) {
	if local {
		return c.group.KV().Index(ctx, conclave.Stale())
	}
	return c.group.KV().Index(ctx)
}

// kvPut writes a key.
func (c *call) kvPut(key string) error {
	if key == "" {
		return invalid("Missing key name")
	}
	if err := validKey(key); err != nil {
		return err
	}
	if err := c.conflicting("cas", "acquire", "release"); err != nil {
		return err
	}
	flags, _, err := c.number("flags")
	if err != nil {
		return err
	}
	index, cas, err := c.number("cas")
	if err != nil {
		return err
	}
	if err := c.authorize(Write, "key/"+key); err != nil {
		return err
	}
	value, release, err := c.body(c.bodies, maxValue, func(size int64) error {
		return refuse(http.StatusRequestEntityTooLarge, "Request body(%d bytes) too large, max size: %d bytes.", size, maxValue)
	})
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := c.patience()
	defer cancel()
	kv, with, done := c.group.KV(), conclave.WithFlags(flags), true
	switch {
	case cas:
		_, done, err = kv.CompareAndSwap(ctx, key, index, value, with)
	case c.query.Has("acquire"):
		done, err = c.locked(c.query.Get("acquire"), func(id conclave.SessionID) error {
			_, err := kv.Acquire(ctx, key, value, id, with)
			return err
		})
	case c.query.Has("release"):
		done, err = c.locked(c.query.Get("release"), func(id conclave.SessionID) error {
			_, err := kv.Release(ctx, key, value, id, with)
			if errors.Is(err, conclave.ErrSessionExpired) {
				return conclave.ErrNotHeld
			}
			return err
		})
	default:
		_, err = kv.Put(ctx, key, value, with)
	}
	if err != nil {
		return err
	}
	return c.answer(done)
}

// locked acquires or releases a key for a session, and translates what is no error in
// Consul.
func (c *call) locked(session string, do func(conclave.SessionID) error) (bool, error) {
	if session == "" {
		return false, invalid("missing session")
	}
	id, err := conclave.ParseSessionID(session)
	if err != nil {
		return false, invalidSession(session)
	}
	err = do(id)
	switch {
	case errors.Is(err, conclave.ErrLocked), errors.Is(err, conclave.ErrLockDelay), errors.Is(err, conclave.ErrNotHeld):
		return false, nil
	case errors.Is(err, conclave.ErrSessionExpired) && !errors.Is(err, conclave.ErrUnknown):
		return false, invalidSession(session)
	}
	return err == nil, err
}

// invalidSession has the text that clients recognize.
func invalidSession(session string) error {
	return refuse(http.StatusInternalServerError, "invalid session %q", shorten(session))
}

// kvDelete deletes a key, or all with a prefix.
func (c *call) kvDelete(key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	if err := c.conflicting("recurse", "cas"); err != nil {
		return err
	}
	recurse, err := c.flag("recurse")
	if err != nil {
		return err
	}
	index, cas, err := c.number("cas")
	if err != nil {
		return err
	}
	resource := "key/" + key
	if recurse {
		resource = "key_prefix/" + key
	} else if key == "" {
		return invalid("Missing key name")
	}
	if err := c.authorize(Write, resource); err != nil {
		return err
	}
	ctx, cancel := c.patience()
	defer cancel()
	kv, done := c.group.KV(), true
	switch {
	case recurse:
		err = kv.DeletePrefix(ctx, key)
	case cas:
		done, err = c.deleteIf(ctx, key, index)
	default:
		err = kv.Delete(ctx, key)
	}
	if err != nil {
		return err
	}
	return c.answer(done)
}

// deleteIf deletes a key with that modify index. As in Consul, one that does not exist is
// deleted, whatever the index.
func (c *call) deleteIf(ctx context.Context, key string, index uint64) (bool, error) {
	done, err := c.group.KV().CompareAndDelete(ctx, key, index)
	if done || err != nil {
		return done, err
	}
	_, err = c.group.KV().Get(ctx, key)
	if errors.Is(err, conclave.ErrKeyNotFound) {
		return true, nil
	}
	return false, err
}

// conflicting refuses parameters that exclude each other.
func (c *call) conflicting(names ...string) error {
	found := 0
	for _, name := range names {
		if c.query.Has(name) {
			found++
		}
	}
	if found < 2 {
		return nil
	}
	c.query.Del("token")
	return invalid("Conflicting flags: %s\n", strings.ToValidUTF8(c.query.Encode(), "?"))
}
