package machine

import (
	"encoding/binary"
	"math"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// Clients in the random logs, and what lies about them.

// clientKey is the public key of the n-th client.
func clientKey(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24), n) }

// clientRegistration registers a new client, or one that was there, perhaps.
func (g *generator) clientRegistration(r *reference.Model) *wire.Submission {
	if !g.chance(40) || g.clients == 0 {
		g.clients++
	}
	key := clientKey(g.clients - g.rand.Uint64N(min(g.clients, 3)))
	id := wire.ClientIncarnation(key)
	g.ids = append(g.ids, id)
	c := &wire.RegisterClient{Key: key, Ttl: (1 + g.rand.Int64N(4)) * second}
	c.Until = r.Now + 1 + g.rand.Int64N(c.Ttl)
	s := &wire.Submission{Member: wire.FingerprintOf(key), Incarnation: id[:], Client: !g.chance(3)}
	switch g.rand.IntN(40) {
	case 0:
		c.Ttl = g.rand.Int64() - math.MaxInt64/2
		if g.chance(50) {
			c.Ttl = MaxClientTTL + g.rand.Int64N(2)
		}
	case 1:
		c.Until = g.rand.Int64() - math.MaxInt64/2
	case 2:
		c.Until = r.Now
	case 3:
		c.Until = r.Now + c.Ttl
	case 4:
		c.Key = clientKey(g.clients + 1)
	case 5:
		s.Member = g.member(r)
	case 6:
		s.Incarnation = g.newID()
	case 7:
		c.Key = c.Key[:g.rand.IntN(32)]
	case 8:
		s.Floor = g.rand.Uint64N(3)
	}
	s.Calls = []*wire.Call{g.newCall(id, &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: c}})}
	if len(g.calls[id]) > 1 && g.chance(60) { // a late duplicate
		s.Calls[0] = g.calls[id][0]
	}
	return s
}

// misplaced is the registration of a client by another process.
func (g *generator) misplaced(r *reference.Model) *wire.Command {
	return &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{
		Key: clientKey(g.rand.Uint64N(g.clients + 2)), Ttl: second, Until: r.Now + second,
	}}}
}

func (g *generator) renewClients(r *reference.Model) *wire.Command {
	c := new(wire.RenewClients)
	for _, inc := range r.Incarnations {
		if inc.Client && g.chance(80) || g.chance(5) {
			c.Incarnations = append(c.Incarnations, inc.ID[:])
		}
	}
	switch g.rand.IntN(20) {
	case 0:
		c.Incarnations = append(c.Incarnations, g.newID(), g.newID()[:g.rand.IntN(16)])
	case 1:
		if g.chance(2) {
			c.Incarnations = make([][]byte, MaxRenewed+g.rand.IntN(2))
		}
	}
	return &wire.Command{Op: &wire.Command_RenewClients{RenewClients: c}}
}

// members counts the registered incarnations of members.
func (g *generator) members(r *reference.Model) (n int) {
	for _, inc := range r.Incarnations {
		if !inc.Client {
			n++
		}
	}
	return n
}
