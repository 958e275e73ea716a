package consulapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/conclave-go/conclave"
)

// sessionEntry is a session as Consul's API has it. It has no field Checks, which Consul omits unless a client of a
// version before 1.7 has set it: NodeChecks has all.
type sessionEntry struct {
	ID            string
	Name          string
	Node          string
	LockDelay     time.Duration
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []string
	CreateIndex   uint64
	ModifyIndex   uint64
}

func (n nodes) session(s conclave.SessionInfo) sessionEntry {
	e := sessionEntry{
		ID: s.ID.String(), Name: s.Name, Node: n.name(s.Node), LockDelay: s.LockDelay, Behavior: s.Behavior.String(),
		TTL: written(s.TTL), NodeChecks: []string{}, CreateIndex: s.CreateIndex, ModifyIndex: s.CreateIndex,
	}
	for _, name := range s.Checks {
		e.NodeChecks = append(e.NodeChecks, checkID(name))
	}
	return e
}

const maxSessionBody = 64 << 10

// sessionCreate opens a session.
func (c *call) sessionCreate(string) error {
	own := c.nodes().own()
	if err := c.authorize(Write, "session/"+own); err != nil {
		return err
	}
	body, release, err := c.body(c.bodies, maxSessionBody, func(size int64) error {
		return refuse(http.StatusRequestEntityTooLarge, "Request body too large, max size: %d bytes", maxSessionBody)
	})
	if err != nil {
		return err
	}
	defer release()
	cfg, err := parseSession(body, own, c.opts.SessionTTLMin)
	if err != nil {
		return err
	}
	ctx, cancel := c.patience()
	defer cancel()
	id, err := c.group.CreateSession(ctx, cfg)
	switch {
	case errors.Is(err, conclave.ErrCheckCritical):
		return refuse(http.StatusInternalServerError, "Check is in critical state: %v", err)
	case err != nil:
		return err
	}
	return c.answer(struct{ ID string }{id.String()})
}

// sessionDestroy ends a session. As in Consul, one that does not exist is destroyed.
func (c *call) sessionDestroy(text string) error {
	id, err := sessionID(text)
	if err != nil {
		return err
	}
	ctx, cancel := c.patience()
	defer cancel()
	if _, err = c.session(ctx, Write, id); err == nil {
		err = c.group.CloseSession(ctx, id)
	}
	if err != nil && !errors.Is(err, conclave.ErrSessionNotFound) {
		return err
	}
	return c.answer(true)
}

// sessionRenew renews a session.
func (c *call) sessionRenew(text string) error {
	id, err := sessionID(text)
	if err != nil {
		return err
	}
	ctx, cancel := c.patience()
	defer cancel()
	entry, err := c.session(ctx, Write, id)
	if err == nil && entry.TTL != "" { // one without a TTL is not renewed, which is no error
		err = c.group.RenewSession(ctx, id)
	}
	switch {
	case errors.Is(err, conclave.ErrSessionNotFound):
		return refuse(http.StatusNotFound, "Session id '%s' not found", id)
	case err != nil:
		return err
	}
	return c.answer([]sessionEntry{entry})
}

// sessionInfo reads a session.
func (c *call) sessionInfo(text string) error {
	id, err := sessionID(text)
	if err != nil {
		return err
	}
	if c.index != 0 {
		if err := c.sessionChange(id); err != nil {
			return err
		}
	}
	if err := c.numbered(); err != nil {
		return err
	}
	ctx, cancel := c.patience()
	defer cancel()
	entry, err := c.session(ctx, Read, id)
	found := []sessionEntry{entry}
	switch {
	case errors.Is(err, conclave.ErrSessionNotFound):
		found = []sessionEntry{}
	case err != nil:
		return err
	}
	return c.answer(found)
}

// sessionChange is the wait of a blocking query for one session.
func (c *call) sessionChange(id conclave.SessionID) error {
	ctx, cancel := c.patience()
	defer cancel()
	if _, err := c.session(ctx, Read, id); err != nil && !errors.Is(err, conclave.ErrSessionNotFound) {
		return err
	}
	return c.listChange(func(ctx context.Context) bool { return c.unchangedSession(ctx, id) })
}

// session reads a session, and asks whether the request may do this with it. What is
// asked about a session that does not exist concerns this node.
func (c *call) session(ctx context.Context, verb Verb, id conclave.SessionID) (sessionEntry, error) {
	names := c.nodes()
	info, err := c.group.SessionInfo(ctx, id, c.consistency()...)
	missing := errors.Is(err, conclave.ErrSessionNotFound)
	if err != nil && !missing {
		return sessionEntry{}, err
	}
	of := names.own()
	if !missing {
		of = names.name(info.Node)
	}
	if err := c.authorize(verb, "session/"+of); err != nil {
		return sessionEntry{}, err
	}
	return names.session(info), err
}

// sessionNode lists the sessions of a node.
func (c *call) sessionNode(name string) error {
	if name == "" {
		return invalid("Missing node name")
	}
	if err := c.awaitList("session/" + name); err != nil {
		return err
	}
	return c.sessionsOf(func(node string) bool { return node == name })
}

// sessionList lists all sessions.
func (c *call) sessionList(string) error {
	if err := c.awaitList("session_prefix/"); err != nil {
		return err
	}
	return c.sessionsOf(func(string) bool { return true })
}

func (c *call) sessionsOf(wanted func(node string) bool) error {
	return c.gathered(func() error {
		ctx, cancel := c.patience()
		defer cancel()
		return c.collect(ctx, func() error { return c.listSessions(ctx, wanted) })
	})
}

func (c *call) listSessions(ctx context.Context, wanted func(node string) bool) error {
	names := c.nodes()
	var failed error
	body, err := encodeAll(c, func(yield func(sessionEntry) bool) {
		failed = each(c.group.Sessions(ctx), func(s conclave.SessionInfo) bool {
			return !wanted(names.name(s.Node)) || yield(names.session(s))
		})
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return c.write(http.StatusOK, "application/json", body)
}

// each calls do for each item of a listing, until it returns false or the listing fails.
func each[T any](items iter.Seq2[T, error], do func(T) bool) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if !do(item) {
			return nil
		}
	}
	return nil
}

func sessionID(text string) (conclave.SessionID, error) {
	if text == "" {
		return conclave.SessionID{}, invalid("Missing session")
	}
	id, err := conclave.ParseSessionID(text)
	if err != nil {
		return id, invalid("invalid session ID %q: want a UUID", shorten(text))
	}
	return id, nil
}
