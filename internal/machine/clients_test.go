package machine

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Clients in scripts and audits.

// wordKey is the public key of a script's client.
func wordKey(word string) []byte { return append(bytes.Repeat([]byte{7}, 32-len(word)), word...) }

func (s *script) isClient(word string) bool {
	if word[0] != '@' {
		return false
	}
	s.words = append(s.words, word)
	return true
}

// named returns what is printed with the clients by their names.
func (s *script) named(text string) string {
	for _, word := range s.words {
		id := fmt.Sprint(wire.FingerprintOf(wordKey(word)))
		text = strings.NewReplacer(printID(makeID(word)), word, "member "+id, "client "+word, "client "+id, "client "+word).Replace(text)
	}
	return text
}

func parseClient(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "register-client":
		op := &wire.RegisterClient{Ttl: a.duration("ttl", 10*time.Second), Until: a.duration("until", 10*time.Second)}
		if key, ok := a.value("key"); ok && key[0] == '@' {
			op.Key = wordKey(key)
		} else {
			op.Key = []byte(key)
		}
		c.Op = &wire.Command_RegisterClient{RegisterClient: op}
	case "renew-clients":
		op := new(wire.RenewClients)
		for _, word := range strings.Split(a.at(1), ",") {
			op.Incarnations = append(op.Incarnations, a.id(word))
		}
		for range a.number("times") {
			op.Incarnations = append(op.Incarnations, op.Incarnations[0])
		}
		c.Op = &wire.Command_RenewClients{RenewClients: op}
	}
}

// clients checks the records of clients, which are derived from incarnations and sessions.
func (a *auditor) clients() {
	m, registered := a.m, 0
	for inc := range m.registry.all() {
		switch c := m.clients[inc.member]; {
		case m.registry.byID[inc.id] != inc:
			a.fail("incarnation %s is listed, and not found", inc.id)
		case !inc.client && inc.until != 0:
			a.fail("incarnation %s is not a client's, and has its time", inc.id)
		case inc.client && (c == nil || c.incarnation != inc || !m.hasClients()):
			a.fail("client %d is not found", inc.member)
		case inc.client:
			registered++
		}
	}
	if registered != m.registry.clients || registered != m.Counts().Clients || m.registry.sorted.Len() != len(m.registry.byID) {
		a.fail("%d clients are registered, %d are counted", registered, m.registry.clients)
	}
	for id, c := range m.clients {
		if c.incarnation == nil && c.sessions.Len == 0 || c.incarnation != nil && m.registry.byID[c.incarnation.id] != c.incarnation {
			a.fail("client %d is kept after its end", id)
		}
	}
	for id, t := range m.tombstones.byID {
		inc := m.registry.byID[id] // below level 6 a member may register a process under it
		if t.id != id || inc != nil && inc.client || !m.tombstones.byEnd.Contains(t) {
			a.fail("client %s is registered after its end", id)
		}
	}
	if len(m.tombstones.byID) != m.tombstones.byEnd.Len() {
		a.fail("%d tombstones, and %d are kept", len(m.tombstones.byID), m.tombstones.byEnd.Len())
	}
}
